package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

// leftLimit bounds the reading of the records of a restore of which nothing is open.
const leftLimit = 30 * time.Second

// sealLeft seals what a restore began of which nothing is open, by its records. Nil without an error
// means that it began nothing.
func (c *Config) sealLeft(ctx context.Context, restore *velerov1.Restore, reason string) (log *operation.Log, err error) {
	ctx, stop := context.WithTimeout(ctx, leftLimit)
	defer stop()
	store, err := c.openLeft(ctx, restore)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	recorder := outcome.NewRecorder(outcome.NewLog(io.Discard, restore.Name), c.Clock, c.RecordBatch, "")
	defer func() { err = errors.Join(err, recorder.Close()) }()
	if err := pausing.LoadUnfinished(ctx, store, restore, recorder); err != nil && !errors.Is(err, pausing.ErrNoRecords) {
		return nil, err
	}
	begun := recorder.Operations()
	if len(begun) == 0 {
		return nil, nil
	}
	held, _, err := claim.Parse(restore)
	if err != nil {
		return nil, err
	}
	list := listOf(operation.Job{Kind: operation.KindRestore, Name: restore.Name, UID: string(restore.UID)}, held.Epoch, begun, reason)
	return sealList(ctx, store, list)
}

// openLeft opens the location of the records of a restore. An error that waiting does not change is
// fatal.
func (c *Config) openLeft(ctx context.Context, restore *velerov1.Restore) (objectstore.Store, error) {
	location := mark.PausedLocation(restore)
	if location == "" {
		backup := &velerov1.Backup{}
		if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: restore.Namespace, Name: restore.Spec.BackupName}, backup); err != nil {
			return nil, unlessAway(err, fmt.Sprintf("read backup %q", restore.Spec.BackupName))
		}
		location = backup.Spec.StorageLocation
	}
	what := fmt.Sprintf("open location %q", location)
	loc, err := c.Locations.Get(ctx, location)
	if err != nil {
		return nil, unlessAway(err, what)
	}
	store, err := c.Locations.Open(ctx, loc)
	switch {
	case err == nil:
		return store, nil
	case !isTransientServerError(err):
		return nil, fatalErrorf("%s: %w", what, err)
	}
	return nil, fmt.Errorf("%s: %w", what, err)
}

// endOperations has the operations of a deleted restore sealed, and then cancelled, before its files
// go, each for as long as StorePatience. The restore has no holder. It returns after how long it has
// to be asked again; 0 when no operation is left.
func (k *Kind) endOperations(ctx context.Context, restore *velerov1.Restore) time.Duration {
	phase := restore.Status.Phase
	_, held, err := claim.Parse(restore)
	if err != nil || !held || phase != velerov1.RestorePhaseInProgress && !waitingRestore(phase) {
		return 0
	}
	waits := 3 // for what it paused, the seal and the cancels
	if phase == velerov1.RestorePhaseInProgress {
		waits = 2
		log, left := k.cfg.sealLeft(ctx, restore, deletedReason)
		if left == nil && (log == nil || log.Ended()) {
			return 0
		}
		if err = left; err == nil {
			err = k.writeWaiting(ctx, restore, log)
		}
	}
	if k.isWithinWaits(restore, waits) {
		if err != nil && ctx.Err() == nil {
			k.cfg.Log.WarnContext(ctx, "operations of a deleted restore not cancelled; retrying", "restore", restore.Name, "error", err)
		}
		return soon
	}
	k.cfg.Log.ErrorContext(ctx, "operations of a deleted restore may go on", "restore", restore.Name, "error", err)
	return 0
}

// writeWaiting leaves a deleted restore that has no holder to async-operation-monitor, which cancels
// its operations.
func (k *Kind) writeWaiting(ctx context.Context, restore *velerov1.Restore, log *operation.Log) error {
	err := kube.Update(ctx, k.cfg.Reader, k.cfg.Client, restore.DeepCopy(), func(o *velerov1.Restore) error {
		if o.Status.Phase != velerov1.RestorePhaseInProgress {
			return kube.ErrSkip
		}
		o.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed
		setOperationCounts(o, log)
		return nil
	})
	if errors.Is(err, kube.ErrReplaced) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
