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
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

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
	paused pausing.Left
	// unread is why it is not known what the restore began; for the goroutine of the attempt alone.
	unread error
}

// newSession returns a session; the function ends it.
func newSession(cfg *Config, held *engine.Held[*velerov1.Restore]) (*session, context.CancelFunc) {
	s := &session{cfg: cfg, held: held, restore: held.Object, log: held.Log, paused: pausing.Left{Location: mark.PausedLocation(held.Object)}}
	var end context.CancelFunc
	s.stopped, end = engine.Join(held.Stopping(), held.Cancelling())
	return s, end
}

// confirm fails once the claim is lost. A dry run has none, and changes nothing.
func (s *session) confirm(ctx context.Context) error {
	if s.held == nil {
		return nil
	}
	return s.held.Confirm(ctx)
}

// isFresh reports that no earlier holder can have restored anything.
func (s *session) isFresh() bool { return s.held.Claim.Epoch == 1 }

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

// checkStillPresent is checkPresent after a wait; it ends the job with the restore.
func (s *session) checkStillPresent(ctx context.Context) error {
	if s.held == nil {
		return nil
	}
	err := s.retryCall(ctx, "look at the restore", func() error { return s.checkPresent(ctx) })
	if errors.Is(err, claim.ErrLost) {
		s.held.LoseClaim(err)
	}
	return err
}

// writeMark has set change the Restore.
func (s *session) writeMark(ctx context.Context, what string, set func(*velerov1.Restore) error) error {
	err := s.retryCall(ctx, what, func() error {
		_, err := s.held.Update(ctx, func(o *velerov1.Restore) error {
			if o.DeletionTimestamp != nil {
				return errDeleted
			}
			return set(o)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// retryCall repeats a call while the API server or the network is away, until ctx ends.
func (s *session) retryCall(ctx context.Context, what string, do func() error) error {
	return retry.Loop{Clock: s.cfg.Clock, Log: s.log, Transient: isTransientServerError}.Do(ctx, what, do)
}

// retryingStore waits for a bucket that is away for StorePatience, while the claim lasts and the
// restore is not deleted.
func (s *session) retryingStore(store objectstore.Store) *retrystore.Store {
	return &retrystore.Store{Store: store, Clock: s.cfg.Clock, Log: s.log, Budget: s.cfg.StorePatience, Confirm: s.checkStillPresent}
}
