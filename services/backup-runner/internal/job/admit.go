package job

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// Pending implements engine.Kind.
func (k *Kind) Pending(_ context.Context, b *velerov1.Backup) (engine.Interest, error) {
	switch runs, _ := isRunnable(b.Status.Phase); {
	case leftUnfinished(b):
		return engine.Resume, nil
	case isDryRun(b):
		return engine.Begin, nil
	case !runs:
		return engine.None, nil
	case b.Status.Phase == velerov1.BackupPhaseReadyToStart:
		return engine.Begin, nil
	}
	return engine.Resume, nil
}

// Terminal implements engine.Kind.
func (k *Kind) Terminal(b *velerov1.Backup) bool { return b.Status.Phase.Terminal() }

// Admit implements engine.Kind. A backup that was asked to cancel before a holder worked on it ends
// as Failed. One that was begun and is cancelled needs no place in the ledger: nothing is collected
// for it.
func (k *Kind) Admit(ctx context.Context, b *velerov1.Backup) (engine.Decision[*velerov1.Backup], error) {
	if leftUnfinished(b) {
		return k.admitForeign(ctx, b)
	}
	if isDryRun(b) {
		return k.endDryRun(ctx, b)
	}
	runs, needsLedger := isRunnable(b.Status.Phase)
	if !runs {
		return engine.NotNow[*velerov1.Backup](fmt.Sprintf("its phase is %q", b.Status.Phase)), nil
	}
	job := &attempt{Kind: k}
	if needsLedger && !isStopping(b) {
		entry, admitted, err := k.Ledger.Get(ctx, b.UID)
		if err != nil {
			return engine.Decision[*velerov1.Backup]{}, fmt.Errorf("read the ledger: %w", err)
		}
		if !admitted {
			return engine.NotNow[*velerov1.Backup]("it is not in the ledger"), nil
		}
		job.admitted = entry
	}
	if r, asked := mark.CancelRequested(b); asked && mark.BackupStage(b) == mark.StageWaiting {
		return k.endUnclaimed(&mark.CancelError{Request: r}), nil
	}
	return engine.Claim[*velerov1.Backup](job), nil
}

// GiveUp implements engine.Kind. A backup that was begun is claimed to end by its records, since the
// bucket may know of it; any other ends on the object alone.
func (k *Kind) GiveUp(b *velerov1.Backup, reason error, claimable bool) engine.Decision[*velerov1.Backup] {
	runs, _ := isRunnable(b.Status.Phase)
	switch {
	case !runs:
		return engine.NotNow[*velerov1.Backup](fmt.Sprintf("its phase is %q", b.Status.Phase))
	case claimable && b.Status.Phase != velerov1.BackupPhaseReadyToStart:
		return engine.Claim[*velerov1.Backup](&attempt{Kind: k, givenUp: reason})
	}
	return k.endUnclaimed(reason)
}

// endUnclaimed ends a backup without a claim.
func (k *Kind) endUnclaimed(reason error) engine.Decision[*velerov1.Backup] {
	return engine.End(func(b *velerov1.Backup) error { return failUnclaimed(b, reason.Error(), k.currentTime()) }, k.endedUnclaimed)
}

// isStopping reports whether a backup that was begun is cancelled.
func isStopping(b *velerov1.Backup) bool {
	_, asked := mark.CancelRequested(b)
	return asked && mark.BackupStage(b) == mark.StageRunning
}

// isRunnable reports whether a runner works on backups of that phase, and whether they must be in the
// ledger for it.
func isRunnable(p velerov1.BackupPhase) (ok, needsLedger bool) {
	switch p {
	case velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress:
		return true, true
	case velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed:
		return true, false
	}
	return false, false
}

// startBackup makes a backup one that has begun.
func startBackup(b *velerov1.Backup, at metav1.Time) {
	b.Status.Phase = velerov1.BackupPhaseInProgress
	b.Status.StartTimestamp = &at
	b.Status.Version = 1
	b.Status.FormatVersion = manifest.FormatVersion
	b.Status.QueuePosition = 0
	b.Status.Progress = &velerov1.BackupProgress{}
}

// failBackup makes a backup one that failed, for a reason that the bucket does not hold.
func failBackup(b *velerov1.Backup, reason string, at metav1.Time) {
	b.Status.Phase, b.Status.FailureReason, b.Status.CompletionTimestamp = velerov1.BackupPhaseFailed, reason, &at
}

// failUnclaimed is fail of a backup that no process works on. What its last holder left is not known.
func failUnclaimed(b *velerov1.Backup, reason string, at metav1.Time) error {
	begun := b.Status.Phase == velerov1.BackupPhaseInProgress
	failBackup(b, reason, at)
	if !begun {
		return nil
	}
	return mark.SetPostHooks(b, mark.PostHooks{Owed: true})
}

// currentTime is the time in the precision that JSON keeps.
func (k *Kind) currentTime() metav1.Time { return metav1.NewTime(k.Clock.Now().Truncate(time.Second)) }

// endedUnclaimed announces the end of a backup that was not claimed.
func (k *Kind) endedUnclaimed(ctx context.Context, b *velerov1.Backup) {
	k.announceEnded(ctx, k.Log.With("name", b.Name, "uid", b.UID), b, finalize.Contents{})
}
