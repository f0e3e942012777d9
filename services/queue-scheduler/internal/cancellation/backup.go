package cancellation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/posthooks"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// concludeBackup ends a backup in the phase that its metadata file in the bucket has, and as Failed
// if there is none. It does not wait for the former holder: a runner whose claim is not on the
// object cannot begin a commit.
//
// Nor does it wait for the bucket indefinitely: without the mark of a commit on the object, the
// bucket holds no other end than Failed. A bucket that refuses the calls is not waited for; one that
// cannot be reached is waited for until a second deadline, and tried twice at least.
//
// Post hooks are the runners': the mark on the object has one of them run those that are owed.
func (c *Canceller) concludeBackup(ctx context.Context, b *velerov1.Backup, mine claim.Claim, waited age) (time.Duration, error) {
	r, asked := cancel.Requested(b)
	if !asked {
		return 0, errGone
	}
	last := waited.last(waited.request, c.requestTimeout())
	final, err := c.decide(ctx, b, r.Reason())
	alone := err != nil
	switch {
	case errors.Is(err, commit.ErrForeign), apierrors.IsNotFound(err):
		// The bucket has nothing of this backup, or there is no location.
		final = commit.Failed(b, r.Reason(), c.Clock.Now())
	case err != nil && ctx.Err() == nil && (last || refused(err)):
		c.Log.WarnContext(ctx, "cancelled backup ends without its bucket", "backup", b.Name, "error", err)
		final = commit.Failed(b, r.ReasonBut("the bucket could not be written: "+err.Error()), c.Clock.Now())
	case err != nil:
		return 0, fmt.Errorf("end backup %q in its bucket: %w", b.Name, err)
	}
	return 0, finish(ctx, c, backups, b, mine, func(b *velerov1.Backup) bool {
		if alone && cancel.Committing(b) {
			return false
		}
		if b.Status.Phase == velerov1.BackupPhaseInProgress && final.Status.Phase == velerov1.BackupPhaseFailed {
			if err := posthooks.Set(b, posthooks.Mark{Owed: true}); err != nil { // a mark that cannot be encoded
				c.Log.ErrorContext(ctx, "post hooks of a cancelled backup may not run", "backup", b.Name, "error", err)
			}
		}
		expiration := b.Status.Expiration
		b.Status = *final.Status.DeepCopy()
		if b.Status.Expiration == nil {
			b.Status.Expiration = expiration
		}
		return true
	})
}

// refused reports a failure that time alone does not mend.
func refused(err error) bool {
	return errors.Is(err, objectstore.ErrNoBucket) || errors.Is(err, objectstore.ErrAccess)
}

// decide creates the metadata file, unless it is there. One that takes too long leaves the time to
// write the object. The file of another server's unfinished backup stays as it is.
func (c *Canceller) decide(ctx context.Context, b *velerov1.Backup, reason string) (_ *velerov1.Backup, err error) {
	ctx, done := context.WithTimeout(ctx, bucketLimit)
	defer done()
	store, err := c.Locations.OpenName(ctx, b.Spec.StorageLocation)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := store.Close(); err != nil {
			c.Log.WarnContext(ctx, "bucket not closed", "error", err)
		}
	}()
	committed, found, err := commit.Committed(ctx, store, b)
	switch {
	case err != nil:
		return nil, err
	case found && !committed.Status.Phase.Terminal():
		return commit.Failed(b, reason, c.Clock.Now()), nil
	case found:
		return committed, nil
	}
	cluster, err := c.reserve(ctx, store, b)
	if err != nil {
		return nil, err
	}
	if err := c.explain(ctx, store, b, cluster, reason); err != nil {
		c.Log.WarnContext(ctx, "log of the cancelled backup not stored", "backup", b.Name, "error", err)
	}
	committed, _, err = commit.Commit(ctx, store, commit.Failed(b, reason, c.Clock.Now()))
	if err == nil {
		failpoint.Hit("queue-scheduler/cancel-committed")
	}
	return committed, err
}

// reserve makes the directory in the bucket this backup's, as its runner may not have come so far,
// and returns the cluster's UID. ErrForeign when it is another's, be that one dead: then nothing
// was stored for this one.
func (c *Canceller) reserve(ctx context.Context, store objectstore.Store, b *velerov1.Backup) (cluster string, err error) {
	if cluster, err = kube.ClusterUID(ctx, c.Reader); err != nil {
		return "", err
	}
	mine := layout.Owner{BackupUID: string(b.UID), ClusterUID: cluster}
	data, err := mine.Encode()
	if err != nil {
		return "", fmt.Errorf("encode the owner file: %w", err)
	}
	key := layout.OwnerFile(b.Name)
	err = objectstore.CreateBytes(ctx, store, key, data)
	if !errors.Is(err, objectstore.ErrExists) {
		return mine.ClusterUID, err
	}
	stored, err := objectstore.ReadAll(ctx, store, key, layout.MaxOwnerBytes)
	if err != nil && !errors.Is(err, objectstore.ErrSize) {
		return "", err
	}
	if owner, err := layout.DecodeOwner(stored); err != nil || owner != mine {
		return "", fmt.Errorf("%w: %s", commit.ErrForeign, key)
	}
	return mine.ClusterUID, nil
}

func (c *Canceller) explain(ctx context.Context, store objectstore.Store, b *velerov1.Backup, cluster, reason string) (err error) {
	dir, err := os.MkdirTemp(c.WorkDir, "cancel-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return commit.Explain(ctx, store, dir, b, cluster, commit.Failure{Reason: reason, Time: c.Clock.Now().UTC().Truncate(time.Millisecond), Source: "holdfast/queue-scheduler"})
}
