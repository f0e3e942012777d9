package remove

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

// CSI removes the CSI snapshots of a backup; csisnapshot.API does.
type CSI interface {
	// Served reports whether the cluster serves the snapshot API.
	Served(ctx context.Context) (bool, error)
	// DiscardAll removes the snapshots that are in the cluster, with what the drivers stored.
	DiscardAll(ctx context.Context, of csisnapshot.Owner) error
	// Gone waits until the drivers have removed the snapshots.
	Gone(ctx context.Context, of csisnapshot.Owner) error
}

// byCSI is what is done before anything of a backup is removed.
const byCSI = "CSI snapshots"

// countsAsLeft reports whether the data cannot be removed. Which CSI snapshots and snapshots of repositories can is noted.
func (j *deletionJob) countsAsLeft(d *volumedata.Data, served bool) bool {
	if j.isForgettable(d) {
		j.files.addSnapshot(d.Namespace, d.Files.ID)
		return false
	}
	if d.Method != volumedata.CSISnapshot || !served {
		return true
	}
	j.snapshots = j.snapshots || d.Stored
	return false
}

// removesCSI reports whether CSI snapshots can be removed.
func (j *deletionJob) removesCSI(ctx context.Context) (bool, error) {
	if j.remover.CSI == nil {
		return false, nil
	}
	served, err := j.remover.CSI.Served(ctx)
	if err != nil {
		return false, fmt.Errorf("ask for the snapshot API: %w", err)
	}
	return served, nil
}

// removeCSI has the drivers remove the snapshots that the backup lists, and those in the cluster
// that are labelled as its. It returns once they are gone; its errors keep the backup.
func (j *deletionJob) removeCSI(ctx context.Context, store objectstore.Store, stored *velerov1.Backup) error {
	if j.remover.CSI == nil || allowsLeftData(j.backup, j.request) {
		return nil
	}
	owner := csisnapshot.Owner{Name: j.backup.Name, UID: types.UID(storedUID(j, stored))}
	err := j.removeStored(ctx, store)
	if err == nil {
		err = j.held.Confirm(ctx)
	}
	if err == nil {
		err = j.remover.CSI.DiscardAll(ctx, owner)
	}
	if err == nil {
		err = j.remover.CSI.Gone(ctx, owner)
	}
	if err != nil {
		return &keptError{err, byCSI}
	}
	return nil
}

// removeStored shows the items of a backup with CSI snapshots to the action that removes them.
func (j *deletionJob) removeStored(ctx context.Context, store objectstore.Store) error {
	if !j.snapshots || j.remover.CSIActions == nil {
		return nil
	}
	return j.remover.CSIActions.Run(ctx, itemaction.Job{
		Backup: j.backup, Store: store, Confirm: func(ctx context.Context) error { return j.held.Confirm(ctx) },
	})
}
