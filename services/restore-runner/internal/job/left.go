package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

// leftLimit bounds the reading of the records of a restore of which nothing is open.
const leftLimit = 30 * time.Second

// readBegunOperations reads what a restore began, of which nothing is open, by its records. It returns what could
// be read.
func (c *Config) readBegunOperations(ctx context.Context, restore *velerov1.Restore) ([]outcome.Operation, error) {
	location := cmp.Or(mark.PausedLocation(restore), mark.FilesLocation(restore))
	if location == "" {
		backup := &velerov1.Backup{}
		if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: restore.Namespace, Name: restore.Spec.BackupName}, backup); err != nil {
			return nil, fmt.Errorf("read backup %q: %w", restore.Spec.BackupName, err)
		}
		location = backup.Spec.StorageLocation
	}
	recorder := outcome.NewRecorder(outcome.NewLog(io.Discard, restore.Name), c.Clock, c.RecordBatch, "")
	err := pausing.LoadFrom(ctx, c.Locations, restore, location, recorder)
	if errors.Is(err, pausing.ErrNoRecords) {
		err = nil
	}
	return recorder.Operations(), errors.Join(err, recorder.Close())
}

// endOperations has the operations of a deleted restore cancelled before its files go: its own ones by
// this process, those of a restore that waits by async-operation-monitor. Each is tried for as long as
// StorePatience. The restore has no holder. It returns after how long it has to be asked again; 0 when
// its files may go.
func (k *Kind) endOperations(ctx context.Context, restore *velerov1.Restore) time.Duration {
	_, held, err := claim.Parse(restore)
	waits := 3 // for what it paused, its records and the monitor
	switch {
	case err != nil, !held:
		return 0
	case waitingRestore(restore.Status.Phase):
	case restore.Status.Phase != velerov1.RestorePhaseInProgress:
		return 0
	default:
		waits = 2
		var begun []outcome.Operation
		if begun, err = k.cfg.readBegunOperations(ctx, restore); err == nil {
			err = k.cfg.Operations.CancelOpen(ctx, newOperationLog(restore, begun), restore, "the restore was deleted")
		}
		if err == nil {
			return 0
		}
	}
	if k.isWithinWaits(restore, waits) {
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.WarnContext(ctx, "Failed to cancel the operations of a deleted restore; will retry", "restore", restore.Name, "error", err)
		}
		return deletedPause
	}
	k.cfg.Log.ErrorContext(ctx, "Operations of a deleted restore may still be running", "restore", restore.Name, "error", err)
	return 0
}
