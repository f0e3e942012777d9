package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/ending"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
)

// clusterUID returns the UID of namespace kube-system, which stands for the cluster.
func (j *execution) clusterUID(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{}
	err := j.retry(ctx, "read namespace kube-system", func() error {
		return j.Reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns)
	})
	if err != nil {
		return "", fmt.Errorf("identify the cluster: %w", err)
	}
	return string(ns.UID), nil
}

// reserve makes the backup's directory in the bucket this object's, by creating
// the owner file. The error wraps ending.ErrForeign when it is another's.
func (j *execution) reserve(ctx context.Context, out *finish.Job) error {
	mine := layout.Owner{BackupUID: string(j.backup.UID), ClusterUID: out.Cluster}
	data, err := mine.Encode()
	if err != nil {
		return fmt.Errorf("encode the owner file: %w", err)
	}
	failpoint.Hit("backup-runner/before-reserve")
	for range 3 {
		if err := j.confirm(ctx); err != nil {
			return err
		}
		err := objectstore.CreateBytes(ctx, out.Store, layout.OwnerFile(j.backup.Name), data)
		if err == nil {
			failpoint.Hit("backup-runner/reserved")
		}
		if !errors.Is(err, objectstore.ErrExists) {
			return err
		}
		owner, err := j.owner(ctx, out.Store)
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
			return ending.ErrForeign
		}
		// It left no metadata file (decide looked), so nothing was committed, and
		// only a living owner could still do that.
		alive, err := j.lives(ctx, owner.BackupUID)
		if err != nil {
			return err
		}
		if alive {
			return ending.ErrForeign
		}
		j.log.InfoContext(ctx, "removing what an earlier backup of this name left", "uid", owner.BackupUID)
		if err := j.sweepOwner(ctx, out, owner); err != nil {
			return err
		}
	}
	return ending.ErrForeign // another holder came first
}

// lives reports whether a Backup with that UID exists in any namespace: two
// installations in one cluster may share a bucket.
func (j *execution) lives(ctx context.Context, uid string) (bool, error) {
	list := &velerov1.BackupList{}
	err := j.retry(ctx, "look for the owner of the backup's directory", func() error { return j.Reader.List(ctx, list) })
	if err != nil {
		return false, fmt.Errorf("look for the owner of the backup's directory: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(b velerov1.Backup) bool { return string(b.UID) == uid }), nil
}

// sweepOwner removes a dead backup's directory, the owner file last. Should this
// process sleep meanwhile, another holder of the backup may have done so and have
// gone on: what is its is not touched.
func (j *execution) sweepOwner(ctx context.Context, out *finish.Job, dead layout.Owner) error {
	name := j.backup.Name
	ours := layout.PartsPrefix(name, string(j.backup.UID))
	err := finish.RemoveAll(ctx, out.Store, layout.BackupDir(name), func(key string) (bool, error) {
		switch {
		case key == layout.OwnerFile(name):
			return false, nil
		case key == layout.BackupMetadata(name):
			return false, ending.ErrForeign
		case strings.HasPrefix(key, ours):
			return false, fmt.Errorf("%w: %s exists", claim.ErrLost, key)
		}
		return true, j.confirm(ctx)
	})
	if err != nil {
		return err
	}
	owner, err := j.owner(ctx, out.Store)
	if errors.Is(err, objectstore.ErrNotFound) || (err == nil && owner != dead) {
		return nil // another was first
	}
	if err != nil {
		return err
	}
	if err := j.confirm(ctx); err != nil {
		return err
	}
	return out.Store.Delete(ctx, layout.OwnerFile(name))
}

// owner reads whose the backup's directory is.
func (j *execution) owner(ctx context.Context, store objectstore.Reader) (layout.Owner, error) {
	key := layout.OwnerFile(j.backup.Name)
	data, err := objectstore.ReadAll(ctx, store, key, layout.MaxOwnerBytes)
	if err != nil && !errors.Is(err, objectstore.ErrSize) {
		return layout.Owner{}, err
	}
	owner, decodeErr := layout.DecodeOwner(data)
	if err := errors.Join(err, decodeErr); err != nil {
		return layout.Owner{}, fmt.Errorf("%w: %s: %w", ending.ErrForeign, key, err)
	}
	return owner, nil
}
