package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/cancel"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/suspend"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/linger"
)

// execution is one run of one backup by this process.
type execution struct {
	*Runner
	backup   *velerov1.Backup // the newest state this process wrote or read
	mine     claim.Claim
	admitted ledger.Entry
	// reserved: the bucket's directory is or may be this backup's, so that the
	// metadata file decides how it ends.
	reserved bool
	broken   bool // an earlier run of this job panicked
	composed bool // the composition is fixed
	log      *slog.Logger
	// claimed is the backup as this process claimed it.
	claimed *velerov1.Backup
	// stop is closed when the process stops; lasting ends a while after that, or
	// with the claim.
	stop    <-chan struct{}
	lasting context.Context //nolint:containedctx // as long as the run
	// off ends when the backup is asked to stop, with that as its cause.
	off     context.Context //nolint:containedctx // as long as the run
	callOff context.CancelCauseFunc
}

// runnable reports whether a runner works on backups of that phase, and whether
// they must be in the ledger for it.
func runnable(p velerov1.BackupPhase) (ok, needsLedger bool) {
	switch p {
	case velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress:
		return true, true
	case velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed:
		return true, false
	}
	return false, false
}

// claim writes this instance into the backup, with the phase InProgress. The
// error wraps errNotNow when there is nothing to run, *claim.HeldError while a
// live instance holds it. A backup whose claim cannot be read, and so never
// again be taken, ends as Failed; a holder of it stops at its next look. So does
// one that was asked to stop before anybody worked on it.
func (j *execution) claim(ctx context.Context) error {
	if !j.Instance.Ready() {
		return errors.New("this instance holds no lease yet")
	}
	entry, admitted, err := j.Ledger.Get(ctx, j.backup.UID)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	j.admitted = entry
	failpoint.Hit("backup-runner/before-claim")
	fresh := false
	var ended error
	err = kube.Update(ctx, j.Reader, j.Client, j.backup, func(b *velerov1.Backup) error {
		ok, needsLedger := runnable(b.Status.Phase)
		if !ok || b.DeletionTimestamp != nil || (needsLedger && !admitted) {
			return errNotNow
		}
		if _, suspended := suspend.Of(b); suspended && needsLedger {
			return errNotNow
		}
		if ended = hopeless(b); ended != nil {
			j.fail(b, ended.Error())
			return nil
		}
		mine, err := j.Instance.Take(b)
		if err != nil {
			return err
		}
		j.mine, fresh = mine, b.Status.Phase == velerov1.BackupPhaseReadyToStart
		if fresh {
			j.start(b)
		}
		return claim.Set(b, mine)
	})
	if err != nil {
		return err
	}
	if ended != nil {
		j.finished(ctx, finish.Published{})
		return fmt.Errorf("%w: %w", errNotNow, ended)
	}
	j.claimed = j.backup.DeepCopy()
	failpoint.Hit("backup-runner/claimed")
	j.reserved = !fresh // an earlier holder may have come that far
	j.log = j.log.With("epoch", j.mine.Epoch)
	if fresh {
		j.Metrics.Attempt(scheduleOf(j.backup))
		j.publish(ctx)
	}
	j.log.InfoContext(ctx, "backup claimed", "takeover", !fresh)
	return nil
}

// hopeless is why a backup ends without being claimed.
func hopeless(b *velerov1.Backup) error {
	if _, _, err := claim.Parse(b); err != nil {
		return err
	}
	if r, asked := cancel.Requested(b); asked && cancel.BackupStage(b) == cancel.Waiting {
		return &cancel.Error{Request: r}
	}
	return nil
}

func (j *execution) start(b *velerov1.Backup) {
	now := metav1.NewTime(j.Clock.Now().Truncate(time.Second)) // the precision JSON keeps
	b.Status.Phase = velerov1.BackupPhaseInProgress
	b.Status.StartTimestamp = &now
	b.Status.Version = 1
	b.Status.FormatVersion = manifest.FormatVersion
	b.Status.QueuePosition = 0
	b.Status.Progress = &velerov1.BackupProgress{}
}

// stopLimit is how long a job that was told to stop may go on until what it holds
// is recorded.
const stopLimit = 5 * time.Second

// guarded runs the job as long as the claim holds. Told to stop, a job that
// collects comes to the end of its pages; everything else ends at once.
func (j *execution) guarded(ctx context.Context) error {
	lasting, done := linger.Until(context.WithoutCancel(ctx), j.Clock, ctx.Done(), stopLimit, collect.ErrStopped)
	defer done()
	j.off, j.callOff = context.WithCancelCause(lasting)
	defer j.callOff(nil)
	guard, stop := j.Instance.GuardSeeing(lasting, j.backup, j.heed)
	defer stop()
	j.stop, j.lasting = ctx.Done(), guard
	j.heed(j.backup) // an earlier holder may have been asked
	now, end := context.WithCancelCause(guard)
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	err := j.conclude(now)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(guard), claim.ErrLost), errors.Is(err, claim.ErrLost),
		errors.Is(err, journal.ErrFenced), errors.Is(err, kube.ErrReplaced), apierrors.IsNotFound(err):
		j.log.WarnContext(ctx, "claim lost, job stopped", "error", err, "cause", context.Cause(guard))
		j.leave(ctx)
		return nil // its new holder goes on
	}
	var away *unreachableError
	if errors.As(err, &away) && ctx.Err() == nil && j.suspend(ctx, away) {
		return nil
	}
	j.handOver(ctx)
	return err
}

// lingers returns ctx without its end: it ends with the claim, or a while after
// the job was told to stop, or once the backup is cancelled.
func (j *execution) lingers(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	release := context.AfterFunc(j.lasting, func() { end(context.Cause(j.lasting)) })
	ctx, stop := j.cancellable(ctx)
	return ctx, func() {
		release()
		stop()
		end(nil)
	}
}

// confirm returns an error wrapping claim.ErrLost if the claim went to another
// holder: a process that slept must not do now what it decided then.
func (j *execution) confirm(ctx context.Context) error {
	return j.Instance.Confirm(ctx, j.claimed)
}

// handOverTime bounds the writing of a released claim.
const handOverTime = 5 * time.Second

// handOver empties the claim, so that any instance may go on at once.
func (j *execution) handOver(ctx context.Context) {
	failpoint.Hit("backup-runner/before-hand-over")
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), handOverTime)
	defer stop()
	err := kube.Update(ctx, j.Reader, j.Client, j.backup, func(b *velerov1.Backup) error {
		if err := claim.Check(b, j.mine); err != nil {
			return err
		}
		return claim.Release(b)
	})
	if err != nil {
		j.log.WarnContext(ctx, "claim not released, it will expire", "error", err)
		return
	}
	failpoint.Hit("backup-runner/handed-over")
	j.log.InfoContext(ctx, "backup handed over")
}

func scheduleOf(b *velerov1.Backup) string { return b.Labels[velerov1.LabelScheduleName] }
