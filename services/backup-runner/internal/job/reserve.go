package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// backupDirectory is a backup's directory in the bucket.
type backupDirectory struct {
	*Kind
	held  *Held
	store objectstore.Store
	// cluster is the UID of the cluster.
	cluster string
}

// reserveDirectory makes the directory this object's, by creating the owner file. The error wraps
// commit.ErrForeign when it is another's.
func (d *backupDirectory) reserveDirectory(ctx context.Context) error {
	name := d.held.Object.Name
	mine := layout.Owner{BackupUID: string(d.held.Object.UID), ClusterUID: d.cluster}
	data, err := mine.Encode()
	if err != nil {
		return fmt.Errorf("encode the owner file: %w", err)
	}
	failpoint.Hit("backup-runner/before-reserve")
	for range 3 {
		if err := d.held.Confirm(ctx); err != nil {
			return err
		}
		err := objectstore.CreateBytes(ctx, d.store, layout.OwnerFile(name), data)
		if err == nil {
			failpoint.Hit("backup-runner/reserved")
		}
		if !errors.Is(err, objectstore.ErrExists) {
			return err
		}
		owner, err := d.readOwner(ctx)
		if errors.Is(err, objectstore.ErrNotFound) {
			continue // another holder is removing what a dead backup left
		}
		if err != nil {
			return err
		}
		if owner == mine {
			return nil
		}
		if owner.ClusterUID != mine.ClusterUID {
			return commit.ErrForeign
		}
		// It left no metadata file (decide looked), so nothing was committed, and only a living
		// owner could still do that.
		alive, err := d.backupExists(ctx, owner.BackupUID)
		if err != nil {
			return err
		}
		if alive {
			return commit.ErrForeign
		}
		d.held.Log.InfoContext(ctx, "Removing the files of an earlier backup of this name", "uid", owner.BackupUID)
		if err := d.sweepOwner(ctx, owner); err != nil {
			return err
		}
	}
	return commit.ErrForeign // another holder came first
}

// backupExists reports whether a Backup with that UID exists in any namespace: two installations in one
// cluster may share a bucket.
func (d *backupDirectory) backupExists(ctx context.Context, uid string) (bool, error) {
	list := &velerov1.BackupList{}
	err := d.callLoop(d.held.Log).Do(ctx, "look for the owner of the backup's directory", func() error { return d.Reader.List(ctx, list) })
	if err != nil {
		return false, fmt.Errorf("look for the owner of the backup's directory: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(b velerov1.Backup) bool { return string(b.UID) == uid }), nil
}

// sweepOwner removes a dead backup's directory, the owner file last. Should this process sleep
// meanwhile, another holder of the backup may have done so and have gone on: what is its is not
// touched.
func (d *backupDirectory) sweepOwner(ctx context.Context, dead layout.Owner) error {
	name := d.held.Object.Name
	ours := layout.PartsPrefix(name, string(d.held.Object.UID))
	err := finalize.RemoveAll(ctx, d.store, layout.BackupDir(name), func(key string) (bool, error) {
		switch {
		case key == layout.OwnerFile(name):
			return false, nil
		case key == layout.BackupMetadata(name):
			return false, commit.ErrForeign
		case strings.HasPrefix(key, ours):
			return false, fmt.Errorf("%w: %s exists", claim.ErrLost, key)
		}
		return true, d.held.Confirm(ctx)
	})
	if err != nil {
		return err
	}
	owner, err := d.readOwner(ctx)
	if errors.Is(err, objectstore.ErrNotFound) || (err == nil && owner != dead) {
		return nil // another was first
	}
	if err != nil {
		return err
	}
	if err := d.held.Confirm(ctx); err != nil {
		return err
	}
	return d.store.Delete(ctx, layout.OwnerFile(name))
}

// readOwner reads whose the backup's directory is.
func (d *backupDirectory) readOwner(ctx context.Context) (layout.Owner, error) {
	key := layout.OwnerFile(d.held.Object.Name)
	data, err := objectstore.ReadAll(ctx, d.store, key, layout.MaxOwnerBytes)
	if err != nil && !errors.Is(err, objectstore.ErrSize) {
		return layout.Owner{}, err
	}
	owner, decodeErr := layout.DecodeOwner(data)
	if err := errors.Join(err, decodeErr); err != nil {
		return layout.Owner{}, fmt.Errorf("%w: %s: %w", commit.ErrForeign, key, err)
	}
	return owner, nil
}
