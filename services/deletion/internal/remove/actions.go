package remove

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

// Actions shows the items of a backup to plugins before anything of it is removed, see package itemaction. Its errors keep
// the backup as it is.
type Actions interface {
	Run(ctx context.Context, job itemaction.Job) error
}

// keptError is why nothing of a backup was removed.
type keptError struct{ error }

// Unwrap returns the reason.
func (e *keptError) Unwrap() error { return e.error }

// messages returns what the request says.
func (e *keptError) messages() []string {
	texts := []string{e.Error()}
	failed := new(itemaction.FailedError)
	if errors.As(e.error, &failed) {
		texts = failed.Messages()
	}
	for i := range texts {
		texts[i] = "delete item actions: " + texts[i]
	}
	return texts
}

// runActions has the delete item actions of plugins do their work; stored is velero-backup.json, nil if there is none.
func (r *Remover) runActions(ctx context.Context, j *job, store objectstore.Store, stored *velerov1.Backup) error {
	if r.Actions == nil {
		return nil
	}
	backup := j.backup
	if j.resumed && stored != nil { // what is left of the object is its name
		backup = stored.DeepCopy()
		backup.Namespace = j.backup.Namespace
	}
	err := r.Actions.Run(ctx, itemaction.Job{
		Backup: backup, UID: storedUID(j, stored), Attempt: fmt.Sprintf("%s-%d", j.request.UID, j.claim.Epoch), Store: store,
		Confirm: func(ctx context.Context) error { return r.confirm(ctx, j) },
	})
	if err != nil {
		return &keptError{err}
	}
	return nil
}

// unshown makes an error that came before the actions one that keeps the backup and its restores, if there are any actions.
func (r *Remover) unshown(err error) error {
	if r.Actions == nil {
		return err
	}
	return &keptError{fmt.Errorf("not run: %w", err)}
}

// storedUID returns the UID that names the backup in the bucket: another cluster's object of it, and one that was made anew
// from the bucket, have UIDs of their own.
func storedUID(j *job, stored *velerov1.Backup) string {
	if stored == nil || layout.CheckName(string(stored.UID)) != nil {
		return string(j.backup.UID)
	}
	return string(stored.UID)
}
