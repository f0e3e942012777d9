package cancellation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/archive/leftover"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/paused"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// filesLimit bounds the part of bucketLimit for the files of a job that another server left.
const filesLimit = 30 * time.Second

// disinherit ends a backup that another server stored and left unfinished. It was not marked when
// its claim was taken, so no other process ends it in another way.
func (c *Canceller) disinherit(
	ctx context.Context, store objectstore.Store, stored *velerov1.Backup, files *leftover.Job, last bool,
) (*velerov1.Backup, error) {
	final := commit.Inherited(stored, velerov1.BackupPhaseFailed, c.Clock.Now())
	found, err := c.complete(ctx, store, files)
	switch {
	case err == nil:
	case errors.Is(err, errGone), !last && !refused(err):
		return nil, err
	default:
		c.Log.WarnContext(ctx, "files of the cancelled backup not completed", "backup", stored.Name, "error", err)
	}
	if found == nil {
		found = files.Unread()
	}
	found.CountBackup(&final.Status)
	if err := files.Confirm(ctx); err != nil { // what was done above may have taken as long as a claim lasts
		return nil, err
	}
	final.Status.FailureReason = files.Stop
	final.Status.Errors = max(final.Status.Errors, 1)
	if err := commit.Replace(ctx, store, final); err != nil {
		return nil, err
	}
	return final, nil
}

// disinheritRestore ends the operations in the files of a restore that another server left
// unfinished. Nil means that nothing is known of them: a runner restored the objects, or the bucket
// is not waited for any more. Its files change nothing about the end, so that they are waited for
// until a second deadline.
func (c *Canceller) disinheritRestore(ctx context.Context, r *velerov1.Restore, files *leftover.Job, last bool) (*leftover.Outcome, error) {
	if r.Status.Phase == velerov1.RestorePhaseInProgress || paused.Of(r) != "" {
		return nil, nil
	}
	found, err := c.restoreFiles(ctx, r, files)
	switch {
	case err == nil:
	case errors.Is(err, errGone), !last && !refused(err) && !apierrors.IsNotFound(err):
		return nil, err
	default:
		c.Log.WarnContext(ctx, "files of the cancelled restore not completed", "restore", r.Name, "error", err)
	}
	return found, nil
}

func (c *Canceller) restoreFiles(ctx context.Context, r *velerov1.Restore, files *leftover.Job) (found *leftover.Outcome, err error) {
	ctx, done := context.WithTimeout(ctx, bucketLimit)
	defer done()
	b := &velerov1.Backup{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.BackupName}, b); err != nil {
		return nil, fmt.Errorf("read backup %q: %w", r.Spec.BackupName, err)
	}
	store, err := c.Locations.OpenName(ctx, b.Spec.StorageLocation)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ours, err := leftover.Restored(ctx, store, files.Owner)
	if ours || err != nil {
		return nil, err
	}
	return c.complete(ctx, store, files)
}

// complete completes the files of a job that another server left, and returns what was found. With an
// error that is nil, unless the error is leftover.ErrLog.
func (c *Canceller) complete(ctx context.Context, store objectstore.Store, files *leftover.Job) (_ *leftover.Outcome, err error) {
	ctx, done := context.WithTimeout(ctx, filesLimit)
	defer done()
	select {
	case c.completing <- struct{}{}:
		defer func() { <-c.completing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("complete the files: those of other jobs come first: %w", context.Cause(ctx))
	}
	dir, err := os.MkdirTemp(c.WorkDir, "inherited-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	files.Store, files.Dir, files.Source, files.Now = store, dir, "holdfast/queue-scheduler", c.Clock.Now().UTC()
	found, err := files.Look(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	err = files.Publish(ctx, found)
	switch {
	case errors.Is(err, leftover.ErrLeft):
		c.Log.WarnContext(ctx, "a file of the job does not tell what was found when it was cancelled", "job", files.Value, "error", err)
		err = nil
	case err != nil && !errors.Is(err, leftover.ErrLog):
		return nil, err
	}
	return found, err
}

// confirm returns a function whose error is errGone once a job is not this process's to end.
func confirm[T client.Object](c *Canceller, k *kind[T], obj T, mine claim.Claim) func(context.Context) error {
	now := k.new()
	return func(ctx context.Context) error {
		if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(obj), now); apierrors.IsNotFound(err) {
			return errGone
		} else if err != nil {
			return fmt.Errorf("read %s %q: %w", k.name, obj.GetName(), err)
		}
		held, _, err := claim.Parse(now)
		_, asked := cancel.Requested(now)
		if err != nil || held != mine || !asked || now.GetUID() != obj.GetUID() || k.stage(now) != cancel.Running {
			return errGone
		}
		return nil
	}
}
