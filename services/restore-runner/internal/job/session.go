package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// errDeleted ends an attempt at a restore that is being deleted: it is removed, not released.
var errDeleted = fmt.Errorf("%w: the restore is being deleted", claim.ErrLost)

// fatalError ends a restore as Failed; its text is the failureReason.
type fatalError struct{ err error }

// Error implements error.
func (e *fatalError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *fatalError) Unwrap() error { return e.err }

func fatalErrorf(format string, args ...any) error { return &fatalError{fmt.Errorf(format, args...)} }

// session is a claimed restore, with what every part of its work needs. Safe for concurrent use.
type session struct {
	cfg     *Config
	held    *engine.Held[*velerov1.Restore]
	restore *velerov1.Restore // as it was claimed
	log     *slog.Logger
	// stopped ends when the process stops, and when the restore has a request to cancel: no object is
	// begun any more.
	stopped context.Context //nolint:containedctx // as long as the attempt
	// paused is for the goroutine of the attempt alone.
	paused pausedObjects
	// unread is why it is not known what the restore began; for the goroutine of the attempt alone.
	unread error
}

// newSession returns a session; the function ends it.
func newSession(cfg *Config, held *engine.Held[*velerov1.Restore]) (*session, context.CancelFunc) {
	s := &session{cfg: cfg, held: held, restore: held.Object, log: held.Log, paused: pausedObjects{location: mark.PausedLocation(held.Object)}}
	var end context.CancelFunc
	s.stopped, end = engine.Join(held.Stopping(), held.Cancelling())
	return s, end
}

// isFresh reports that no earlier holder can have restored anything.
func (s *session) isFresh() bool { return s.held.Claim.Epoch == 1 }

// quickContext returns a context for work that leaves nothing behind: it ends at once when the process
// stops and, unless there are records to replay, with a request to cancel.
func (s *session) quickContext(ctx context.Context, replays bool) (context.Context, context.CancelFunc) {
	if replays {
		return engine.Join(ctx, s.held.Stopping())
	}
	return engine.Join(ctx, s.stopped)
}

// openingContext returns the context in which the inputs are opened. A request to cancel ends it at once
// if there are no records to replay, and otherwise after cancelledLimit: what is open by then can
// be resumed and reported.
func (s *session) openingContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.isFresh() {
		return s.quickContext(ctx, false)
	}
	return s.closingContext(ctx)
}

// closingContext returns a context that a request to cancel ends after cancelledLimit, and a process that
// stops at once.
func (s *session) closingContext(ctx context.Context) (context.Context, context.CancelFunc) {
	limit, end := engine.WithGrace(s.held.Cancelling(), s.cfg.Clock, cancelledLimit, nil)
	quick, done := s.quickContext(ctx, true)
	joined, release := engine.Join(quick, limit)
	return joined, func() {
		release()
		done()
		end()
	}
}

// checkPresent fails when the restore is being deleted, or no longer this process's.
func (s *session) checkPresent(ctx context.Context) error {
	_, err := s.held.Update(ctx, func(o *velerov1.Restore) error {
		if o.DeletionTimestamp != nil {
			return errDeleted
		}
		return kube.ErrSkip
	})
	return err
}

// checkStillPresent is present after a wait; it ends the job with the restore.
func (s *session) checkStillPresent(ctx context.Context) error {
	err := s.retryCall(ctx, "look at the restore", func() error { return s.checkPresent(ctx) })
	if errors.Is(err, claim.ErrLost) {
		s.held.LoseClaim(err)
	}
	return err
}

// retryCall repeats a call while the API server or the network is away, until ctx ends.
func (s *session) retryCall(ctx context.Context, what string, do func() error) error {
	return retry.Loop{Clock: s.cfg.Clock, Log: s.log, Transient: isTransientServerError}.Do(ctx, what, do)
}

// storeRetries is how calls to the bucket are retried.
func (s *session) storeRetries() *storeRetry {
	return &storeRetry{clock: s.cfg.Clock, log: s.log, budget: s.cfg.StorePatience, still: s.checkStillPresent}
}

// unlessCancelled makes the request to cancel the failure of the restore, in the place of what it
// caused.
func (s *session) unlessCancelled(ctx context.Context, err error) error {
	var fatal *fatalError
	request := s.held.Cancelled()
	switch {
	case err == nil, request == nil, errors.As(err, &fatal), ctx.Err() != nil, s.held.Stopping().Err() != nil, errors.Is(err, claim.ErrLost):
		return err
	}
	return &fatalError{request}
}

// beginCommit marks that the restore is done: from now on a request to cancel it comes too late.
// One that was there before ends it.
func (s *session) beginCommit(ctx context.Context) error {
	err := s.held.BeginCommit(ctx, func(o *velerov1.Restore) error {
		if o.DeletionTimestamp != nil {
			return errDeleted
		}
		return nil
	})
	if request := cancelRequestOf(err); request != nil {
		return &fatalError{request}
	}
	return err
}

// cancelRequestOf returns the request to cancel that an error is about, nil if it is none.
func cancelRequestOf(err error) *mark.CancelError {
	var request *mark.CancelError
	if errors.As(err, &request) {
		return request
	}
	return nil
}
