package queue

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// updateBackup writes a backup that is in the expected phase; one that is not, is being deleted, gone or
// replaced is left alone. b holds its newest state.
func (s *Scheduler) updateBackup(ctx context.Context, b *velerov1.Backup, expected velerov1.BackupPhase, mutate func(*velerov1.Backup) error) error {
	before := b.Status.Phase
	err := kube.Update(ctx, s.Reader, s.Client, b, func(b *velerov1.Backup) error {
		inPhase := b.Status.Phase == expected || expected == velerov1.BackupPhaseNew && b.Status.Phase.IsNew()
		if !inPhase || b.DeletionTimestamp != nil {
			return kube.ErrSkip
		}
		return mutate(b)
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		b.Status.Phase = "" // neither waiting nor running
		return nil
	}
	if err == nil && before != b.Status.Phase && b.Status.Phase == velerov1.BackupPhaseFailedValidation {
		s.Metrics.Ended(b)
		s.Log.Info("Backup failed validation", "backup", b.Name, "problems", b.Status.ValidationErrors)
		s.hints.announcePhase(ctx, b, string(b.Status.Phase))
	}
	return err
}
