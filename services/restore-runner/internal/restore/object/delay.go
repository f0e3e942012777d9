package object

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// The kinds of causes that an object waits for.
const (
	Terminating = "terminating"
	Internal    = "internal"
	Unserved    = "unserved"
)

const (
	// internalPatience is how long requests are repeated at which the server fails by itself, not
	// because of a webhook.
	internalPatience = time.Minute
	// pollEvery is the pause between two reads of an object.
	pollEvery = 250 * time.Millisecond
)

// DelayError is why an object has no outcome yet: something outside of the restore has to change first.
// Its text is the object's error should that not happen in time.
type DelayError struct {
	// Kind is one of the kinds of causes. Objects with the same Key, which is not empty, wait for
	// the same.
	Kind, Key string
	// Timeout is how long an object may wait for causes of the kind.
	Timeout time.Duration
	// Err keeps the object from the cluster. Waits is what it waits for, as long as there is time; "" is
	// the text of Err.
	Err   error
	Waits string
}

// Error implements error.
func (e *DelayError) Error() string { return e.Err.Error() }

// Unwrap returns what keeps the object from the cluster.
func (e *DelayError) Unwrap() error { return e.Err }

// DelayTimeouts are how long objects wait.
type DelayTimeouts struct {
	// Terminating is how long an object of the same name may take to go away.
	Terminating time.Duration
	// Resource is how long the server may take to serve what it does not yet.
	Resource time.Duration
}

// Deleted is the delay by an object of the same name that is being deleted.
func (t DelayTimeouts) Deleted() *DelayError {
	return &DelayError{Kind: Terminating, Timeout: t.Terminating, Waits: "waits until one of that name, which is being deleted, is gone",
		Err: fmt.Errorf("one of that name is still being deleted after %s", t.Terminating)}
}

// Of makes a delay of the failures that may pass: an object that is being deleted is in the way, or
// the server could not ask a webhook. Others are returned as they are.
func (t DelayTimeouts) Of(err error) error {
	if errors.Is(err, apply.ErrTerminating) {
		return t.Deleted()
	}
	by, internal := apply.Internal(err)
	switch {
	case !internal:
		return err
	case by == "":
		return &DelayError{Kind: Internal, Timeout: min(internalPatience, t.Resource), Err: err}
	}
	return &DelayError{Kind: Internal, Key: by, Timeout: t.Resource, Err: fmt.Errorf("%w (tried for %s)", err, t.Resource),
		Waits: "waits for " + by + ": " + err.Error()}
}

// WaitsOf is what the vertices of a retrier wait for. node returns the object of a vertex, which may be
// outcome.General with a name.
func WaitsOf(retrier *dispatch.Retrier, node func(vertex int32) (node int32, name string)) func() []outcome.Wait {
	return func() (all []outcome.Wait) {
		for _, w := range retrier.Waiting() {
			var d *DelayError
			if !errors.As(w.Err, &d) {
				continue
			}
			shown := outcome.Wait{Reason: cmp.Or(d.Waits, d.Error()), Since: w.Since, Others: w.Others}
			shown.Node, shown.Object = node(w.Vertex)
			all = append(all, shown)
		}
		return all
	}
}

// DelayWaiter is where a vertex of a dispatch.Run waits.
type DelayWaiter struct {
	Retrier *dispatch.Retrier
	Vertex  int32
}

// Wait lets the vertex wait if err is a delay, and there is time left for it.
func (w DelayWaiter) Wait(err error) *dispatch.Wait {
	var d *DelayError
	if !errors.As(err, &d) || !w.Retrier.Wait(w.Vertex, dispatch.Cause{Kind: d.Kind, Key: d.Key, Timeout: d.Timeout, Err: err}) {
		return nil
	}
	failpoint.Hit("restore-runner/delayed")
	return &dispatch.Wait{Wake: true}
}

// Poller paces repeated reads of an object.
type Poller struct {
	Clock    clock.WithTicker
	Stop     StopSignal
	Recorder *outcome.Recorder
}

// Pause waits between two reads. An error means that ctx ended or that the restore is to stop; then
// what was waited for has no outcome.
func (p *Poller) Pause(ctx context.Context) error {
	timer := p.Clock.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-p.Stop:
		return dispatch.ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Finish does something at once that is part of another object's work, and repeats it while it
// would wait. object names it.
func (p *Poller) Finish(ctx context.Context, object string, do func(DelayWaiter) *dispatch.Wait) {
	w := DelayWaiter{Retrier: dispatch.NewRetrier(p.Clock)}
	if do(w) == nil {
		return
	}
	defer p.Recorder.ShowWaits(WaitsOf(w.Retrier, func(int32) (int32, string) { return outcome.General, object }))()
	dispatch.RunOutsideLimit(ctx, func() {
		for p.Pause(ctx) == nil && do(w) != nil {
		}
	})
}
