// Package maintain maintains kopia repositories: it removes what no snapshot uses any more, and merges indexes.
//
// kopia relies on one program that does so at a time, and calls all clients default@default. A lease in the
// bucket keeps other Holdfasts out; runs of other programs are found in kopia's history.
package maintain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/maintenance"
	"github.com/kopia/kopia/snapshot/snapshotmaintenance"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// Modes of maintenance.
const (
	// ModeAuto is full if that is due, else quick.
	ModeAuto = "auto"
	// ModeQuick merges indexes.
	ModeQuick = string(maintenance.ModeQuick)
	// ModeFull also removes what no snapshot uses.
	ModeFull = string(maintenance.ModeFull)
	// ModeCreate maintains nothing: the repository is created if there is none.
	ModeCreate = "create"
)

// endTimeout bounds what is done after a run that was canceled.
const endTimeout = 10 * time.Second

// Spec is one run.
type Spec struct {
	// Location has the lease, Namespace the repository.
	Location  objectstore.Store
	Namespace string
	// Holder names this installation to others.
	Holder string
	// Mode is one of the modes.
	Mode string
	// FullInterval is the time between two full runs of ModeAuto; 0: never.
	FullInterval time.Duration
	Clock        clock.WithTicker
}

// Run maintains a repository. While another Holdfast does, or may do, the result is Completed with a message.
func Run(ctx context.Context, r *repository.Repository, s Spec) outcome.Result {
	failed := func(err error) outcome.Result {
		return outcome.Result{Phase: outcome.Failed, Message: fmt.Sprintf("maintenance of the repository of namespace %s: %v", s.Namespace, err)}
	}
	direct, ok := r.Repository.(repo.DirectRepository)
	if !ok {
		return failed(errors.New("the repository is not open at its storage"))
	}
	l, err := acquireLease(ctx, s.Location, s.Namespace, s.Holder, s.Clock)
	var held *heldError
	switch {
	case errors.As(err, &held) && held.Holder != s.Holder: // an own run that was killed is no maintenance
		return outcome.Result{Phase: outcome.Completed, Message: held.Error()}
	case err != nil:
		return failed(fmt.Errorf("lease: %w", err))
	}
	result, err := s.runHolding(ctx, direct, l)
	if err != nil {
		result = failed(err)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := l.endRun(ending, direct); err != nil && result.Phase == outcome.Completed {
		return failed(fmt.Errorf("release the lease: %w", err))
	}
	return result
}

// endRun releases the lease with all runs that kopia knows of. A lease whose end cannot be written expires.
func (l *lease) endRun(ctx context.Context, direct repo.DirectRepository) error {
	newest, err := findNewestRun(ctx, direct)
	if err != nil {
		return err
	}
	l.record.KnownRun = newest
	return l.releaseLease(ctx)
}

// runHolding does what the holder of the lease may do.
func (s *Spec) runHolding(ctx context.Context, direct repo.DirectRepository, l *lease) (outcome.Result, error) {
	newest, err := findNewestRun(ctx, direct)
	known := l.record.KnownRun
	switch {
	case err != nil:
		return outcome.Result{}, err
	case known.IsZero() && !newest.IsZero():
		return outcome.Result{Phase: outcome.Completed, Message: fmt.Sprintf(
			"another program maintained the repository at %s: this run only noted it, and the next one begins unless that program goes on", newest.UTC().Format(time.RFC3339))}, nil
	case newest.After(known):
		return outcome.Result{Phase: outcome.Failed, Foreign: newest.UTC().Format(time.RFC3339), Message: fmt.Sprintf(
			"another program maintained the repository at %s, and only one may do so: stop the maintenance of a Velero server, or of kopia, that uses the bucket", newest.UTC().Format(time.RFC3339))}, nil
	}
	begin, mode := s.Clock.Now(), s.chooseMode(l.record)
	err = l.runRenewing(ctx, s.Clock, func(ctx context.Context) error { return runMode(ctx, direct, mode) })
	if mode == maintenance.ModeFull && err != nil && ctx.Err() == nil && !errors.Is(err, errExpired) {
		// Indexes do not wait until full runs succeed. The error of the full run is the one to report.
		_ = l.runRenewing(ctx, s.Clock, func(ctx context.Context) error { return runMode(ctx, direct, maintenance.ModeQuick) })
	}
	if err != nil {
		return outcome.Result{}, err
	}
	result := outcome.Result{Phase: outcome.Completed}
	if mode == maintenance.ModeFull {
		l.record.LastFull = begin
		result.Empty, err = isEmpty(ctx, direct)
	}
	return result, err
}

// runMode has kopia maintain the repository.
func runMode(ctx context.Context, direct repo.DirectRepository, mode maintenance.Mode) error {
	return repo.DirectWriteSession(ctx, direct, repo.WriteSessionOptions{Purpose: "maintain"}, func(ctx context.Context, w repo.DirectRepositoryWriter) error {
		if err := repository.ForgetLeftCheckpoints(ctx, w); err != nil {
			return err
		}
		return snapshotmaintenance.Run(ctx, w, mode, false, maintenance.SafetyFull)
	})
}

// chooseMode returns the mode of a run that begins now.
func (s *Spec) chooseMode(r record) maintenance.Mode {
	due := s.FullInterval > 0 && !s.Clock.Now().Before(r.LastFull.Add(s.FullInterval))
	if s.Mode == ModeFull || s.Mode == ModeAuto && due {
		return maintenance.ModeFull
	}
	return maintenance.ModeQuick
}

// runRenewing renews the lease while run runs, which ends when that fails for too long.
func (l *lease) runRenewing(ctx context.Context, c clock.WithTicker, run func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	ticker := c.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			if cause := context.Cause(ctx); err != nil && errors.Is(cause, errExpired) {
				err = cause
			}
			return err
		case <-ticker.C():
			if err := l.renewLease(ctx); errors.Is(err, errExpired) {
				cancel(err)
			}
		}
	}
}

// findNewestRun returns when the newest run began that kopia.maintenance has; zero if it has none.
func findNewestRun(ctx context.Context, direct repo.DirectRepository) (newest time.Time, err error) {
	schedule, err := maintenance.GetSchedule(ctx, direct)
	if err != nil {
		return newest, err
	}
	for _, runs := range schedule.Runs {
		for _, r := range runs {
			if r.Start.After(newest) {
				newest = r.Start
			}
		}
	}
	return newest, nil
}
