package remove

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
	"github.com/holdfast-io/holdfast/services/deletion/internal/snapshots"
)

// Actions shows the items of a backup to plugins before anything of it is removed, see package
// itemaction. Its errors keep the backup as it is.
type Actions interface {
	Run(ctx context.Context, job itemaction.Job) error
}

// Snapshots deletes the native snapshots of a backup before anything of it is removed, see package
// snapshots. Its errors keep the backup as it is.
type Snapshots interface {
	Run(ctx context.Context, job snapshots.Job) error
}

// keptError is why nothing of a backup was removed.
type keptError struct {
	error
	by string // what comes first
}

// Unwrap returns the reason.
func (e *keptError) Unwrap() error { return e.error }

// statusMessages returns the errors for the request's status.
func (e *keptError) statusMessages() []string {
	texts := []string{e.Error()}
	failed := new(itemaction.FailedError)
	if errors.As(e.error, &failed) {
		texts = failed.Messages()
	}
	for i := range texts {
		texts[i] = e.by + ": " + texts[i]
	}
	return texts
}

// runActions has the delete item actions of plugins do their work; stored is velero-backup.json,
// nil if there is none.
func (j *deletionJob) runActions(ctx context.Context, store objectstore.Store, stored *velerov1.Backup) error {
	if j.remover.Actions == nil {
		return nil
	}
	if j.skipsActions() {
		j.remover.Log.Warn("Skipped delete item actions as an annotation requests", "backup", j.backup.Name, "request", j.request.Name)
		return nil
	}
	backup := j.backup
	if j.resumed && stored != nil { // what is left of the object is its name
		backup = stored.DeepCopy()
		backup.Namespace = j.backup.Namespace
	}
	err := j.remover.Actions.Run(ctx, itemaction.Job{
		Backup: backup, Store: store, Confirm: func(ctx context.Context) error { return j.held.Confirm(ctx) },
	})
	if err != nil {
		return &keptError{err, byActions}
	}
	return nil
}

// skipsActions reports whether the request or the backup gives leave to delete without delete item
// actions.
func (j *deletionJob) skipsActions() bool { return skipsActions(j.request) || skipsActions(j.backup) }

// What is done before anything of a backup is removed.
const (
	byVolumeData = "volume data"
	byActions    = "delete item actions"
	bySnapshots  = "native snapshots"
)

// removeSnapshots has plugins delete the snapshots that the backup's directory lists.
func (j *deletionJob) removeSnapshots(ctx context.Context, store objectstore.Store, stored *velerov1.Backup) error {
	if j.remover.Snapshots == nil {
		return nil
	}
	err := j.remover.Snapshots.Run(ctx, snapshots.Job{
		Backup: j.backup.Name, UID: storedUID(j, stored), Attempt: fmt.Sprintf("%s-%d", j.request.UID, j.held.Claim.Epoch), Store: store,
		Confirm: func(ctx context.Context) error { return j.held.Confirm(ctx) },
	})
	if err != nil {
		return &keptError{err, bySnapshots}
	}
	return nil
}

// unshownError makes an error that came before the actions one that keeps the backup and its restores,
// if there are any actions.
func (j *deletionJob) unshownError(err error) error {
	if j.remover.Actions == nil || j.skipsActions() {
		return err
	}
	return &keptError{fmt.Errorf("not run: %w", err), byActions}
}

// storedUID returns the UID that names the backup in the bucket: another cluster's object of it,
// and one that was made anew from the bucket, have UIDs of their own.
func storedUID(j *deletionJob, stored *velerov1.Backup) string {
	if stored == nil || layout.CheckName(string(stored.UID)) != nil {
		return string(j.backup.UID)
	}
	return string(stored.UID)
}
