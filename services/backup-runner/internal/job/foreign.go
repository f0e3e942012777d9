package job

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// leftUnfinished reports whether another server began a backup and has not ended it. One in
// ReadyToStart is queue-scheduler's, which queues it again.
func leftUnfinished(b *velerov1.Backup) bool {
	switch b.Status.Phase {
	case velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed:
		return mark.IsForeign(b)
	}
	return false
}

// admitForeign claims a backup that another server left unfinished, once no server of Velero lives.
// The claim makes it FinalizingPartiallyFailed, so that no later holder collects it: endForeign, or
// checkCollected, ends it.
func (k *Kind) admitForeign(ctx context.Context, b *velerov1.Backup) (engine.Decision[*velerov1.Backup], error) {
	server, err := mark.FindForeignServer(ctx, k.Reader, b.Namespace)
	switch {
	case err != nil:
		return engine.Decision[*velerov1.Backup]{}, err
	case server != "":
		return engine.NotNow[*velerov1.Backup](fmt.Sprintf("Deployment %q of Velero may continue it", server)), nil
	}
	return engine.Claim[*velerov1.Backup](&attempt{Kind: k, foreign: true}), nil
}

// endForeign ends a backup that another server stored, as its metadata file says.
func (a *attempt) endForeign(ctx context.Context, s *finalize.State, stored *velerov1.Backup) error {
	s.Stored = stored
	if err := s.Run(ctx, finalize.Foreign()); err != nil {
		return a.storeError(ctx, err)
	}
	return nil
}

// checkCollected makes sure that a runner collected a backup that finalizes and has no metadata file.
// Another server's ends as Failed, on the object alone.
func (a *attempt) checkCollected(ctx context.Context, store objectstore.Store) error {
	b := a.held.Object
	_, err := checkpoint.ReadComposition(ctx, store, b.Name, string(b.UID))
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return &failedError{reason: mark.ForeignReason}
	case errors.Is(err, checkpoint.ErrDamaged):
		return nil // the steps report it
	}
	return err
}
