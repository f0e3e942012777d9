package queue

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// isSuspended reports that a backup was begun and waits to be admitted again: its runner let go of it
// because its bucket is away.
func isSuspended(b *velerov1.Backup) bool {
	_, marked := mark.SuspensionOf(b)
	return marked && b.Status.Phase == velerov1.BackupPhaseInProgress
}

// suspendedUnder reports that the admission of that time is the one the backup was suspended under.
// Any other is a new one, to be completed; zero means none.
func suspendedUnder(b *velerov1.Backup, admission time.Time) bool {
	m, _ := mark.SuspensionOf(b)
	return isSuspended(b) && (admission.IsZero() || m.Admission.Equal(admission))
}

// admissionTime is when a backup is admitted: for one that was suspended another time than before,
// regardless of the clocks of replicas.
func admissionTime(b *velerov1.Backup, now time.Time) time.Time {
	if m, _ := mark.SuspensionOf(b); isSuspended(b) && !now.After(m.Admission) {
		return m.Admission.Add(1)
	}
	return now
}

// resumeSuspended ends the suspension of a backup that is in the ledger again.
func (s *Scheduler) resumeSuspended(ctx context.Context, b *velerov1.Backup) (_ bool, err error) {
	ctx, end := s.traces.resumeTrace(ctx, "admit backup again", b)
	defer func() { end(err) }()
	entry, admitted, err := s.Ledger.Get(ctx, b.UID)
	if err != nil {
		return false, err
	}
	resumed := false
	failpoint.Hit("queue-scheduler/before-resume")
	err = kube.Update(ctx, s.Reader, s.Client, b, func(b *velerov1.Backup) error {
		resumed = admitted && isSuspended(b) && !suspendedUnder(b, entry.Since) && b.DeletionTimestamp == nil
		if !resumed {
			return kube.ErrSkip
		}
		mark.ClearSuspended(b)
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		b.Status.Phase = "" // neither waiting nor running
		return false, nil
	}
	if err != nil || !resumed {
		return false, s.withdrawRefused(ctx, entry, err)
	}
	failpoint.Hit("queue-scheduler/resumed")
	s.reasons.forgetJob(b.UID)
	s.Log.InfoContext(ctx, "suspended backup admitted again", "backup", b.Name)
	s.Events.Eventf(b, nil, corev1.EventTypeNormal, "Resumed", "Start", "goes on after its bucket was away")
	s.hints.hintJob(ctx, b)
	return true, nil
}
