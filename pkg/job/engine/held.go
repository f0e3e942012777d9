package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// Held is a job that this process holds. Its methods are safe for concurrent use.
type Held[T client.Object] struct {
	// Object is the object as it was claimed. It must not be changed.
	Object T
	Claim  claim.Claim
	// Log has the job's name, UID and epoch, and the ID of its trace.
	Log *slog.Logger

	engine    *Engine[T]
	span      trace.Span      // of this attempt
	stopping  context.Context //nolint:containedctx // as long as the run
	cancelled context.Context //nolint:containedctx // as long as the run
	cancel    context.CancelCauseFunc
	lose      context.CancelCauseFunc
	leave     func()      // the place
	over      atomic.Bool // released, or about to be, or its work ended
	// progressed: what this attempt did is durable in part, so that the next one has less to do.
	progressed atomic.Bool
}

// errOver refuses to confirm a claim that this process no longer needs, and may not have any more.
var errOver = fmt.Errorf("%w: the work of this process on the job has ended", claim.ErrLost)

func newHeld[T client.Object](e *Engine[T], obj T, mine claim.Claim, attempt trace.Span) *Held[T] {
	log := e.cfg.Log.With("kind", e.cfg.ObjectKind, "name", obj.GetName(), "uid", obj.GetUID(), "epoch", mine.Epoch)
	if id := attempt.SpanContext(); id.HasTraceID() {
		log = log.With("traceId", id.TraceID().String())
	}
	return &Held[T]{Object: obj, Claim: mine, Log: log, engine: e, span: attempt}
}

// Stopping ends when the process begins to stop. Work that leaves nothing behind ends with it: see
// Join.
func (h *Held[T]) Stopping() context.Context { return h.stopping }

// Cancelling ends once the job is asked to cancel, with a *mark.CancelError as its cause, and when the
// job's context does.
func (h *Held[T]) Cancelling() context.Context { return h.cancelled }

// Cancelled is the request to cancel, nil while there is none.
func (h *Held[T]) Cancelled() *mark.CancelError {
	var asked *mark.CancelError
	if errors.As(context.Cause(h.cancelled), &asked) {
		return asked
	}
	return nil
}

// stateObserver is what is shown each state of the object.
func (h *Held[T]) stateObserver() func(client.Object) {
	if !h.engine.cfg.Cancellable {
		return nil
	}
	return h.observeCancel
}

// observeCancel cancels the work once the object carries a request to cancel.
func (h *Held[T]) observeCancel(obj client.Object) {
	if r, asked := mark.CancelRequested(obj); h.engine.cfg.Cancellable && asked && h.cancelled.Err() == nil {
		h.Log.InfoContext(h.cancelled, "Job is cancelled; stopping it", "by", r.By)
		h.cancel(&mark.CancelError{Request: r})
	}
}

// LoseClaim ends the job's context with that cause: what the job was about is not this process's any
// more.
func (h *Held[T]) LoseClaim(cause error) { h.lose(cause) }

// LeavePlace gives the place of the job in this process to another one. The job goes on.
func (h *Held[T]) LeavePlace() { h.leave() }

// NoteProgress notes that something of the job is done and recorded, which no later attempt does
// again. Attempts that panic without progress are counted, and a job is given up after three.
func (h *Held[T]) NoteProgress() { h.progressed.Store(true) }

// Confirm returns nil when the claim holds at this moment: a process that slept must not do now
// what it decided then. Call it before an effect that no compare-and-swap fences. It
// ends the job when the claim is lost. After Release, and once the work ended, the error wraps
// claim.ErrLost.
func (h *Held[T]) Confirm(ctx context.Context) error {
	if h.over.Load() {
		return errOver
	}
	err := h.engine.cfg.Instance.Confirm(ctx, h.Object)
	if errors.Is(err, claim.ErrLost) {
		h.lose(err)
	}
	return err
}

// Update changes the object by compare-and-swap while the claim holds, and returns it as it was
// written or, after kube.ErrSkip, read. An error wraps claim.ErrLost when the claim, or the object,
// is gone. See kube.Update for mutate.
func (h *Held[T]) Update(ctx context.Context, mutate func(T) error) (T, error) {
	e := h.engine
	return updateCopy(ctx, e.cfg.Reader, e.cfg.Client, h.Object, mutateUnderClaim(h.Claim, mutate))
}

// BeginCommit marks that the job commits: from now on a request to cancel it comes too late. One
// that came before is the error, a *mark.CancelError. check is asked in the same write, and may be nil.
// Calls that fail are repeated while the API server is away.
func (h *Held[T]) BeginCommit(ctx context.Context, check func(T) error) error {
	err := h.engine.retryLoop().Do(ctx, "mark the commit", func() error {
		_, err := h.Update(ctx, func(o T) error {
			if check != nil {
				if err := check(o); err != nil {
					return err
				}
			}
			return mark.SetCommitting(o, h.Claim.Epoch)
		})
		return err
	})
	if err == nil {
		failpoint.HitIn(h.engine.cfg.Service, "commit-marked")
	}
	return err
}

// mutateUnderClaim returns mutate, for as long as the claim holds.
func mutateUnderClaim[T client.Object](mine claim.Claim, mutate func(T) error) func(T) error {
	return func(o T) error {
		if err := claim.Check(o, mine); err != nil {
			return err
		}
		return mutate(o)
	}
}

// updateCopy is kube.Update of a copy. An object that is gone takes the claim with it.
func updateCopy[T client.Object](ctx context.Context, r client.Reader, w client.Client, of T, mutate func(T) error) (T, error) {
	obj, ok := of.DeepCopyObject().(T)
	if !ok {
		return of, fmt.Errorf("%T: its copy is a %T", of, of.DeepCopyObject()) // against the contract of runtime.Object
	}
	err := kube.Update(ctx, r, w, obj, mutate)
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		err = fmt.Errorf("%w: the object is gone: %w", claim.ErrLost, err)
	}
	return obj, err
}
