package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
)

// FileCleaner removes files and finalizer of deleted restores. Safe for concurrent use, by several
// replicas too.
type FileCleaner struct {
	// Reader must not be a cache.
	Reader    client.Reader
	Client    client.Client
	Locations Locations
	Log       *slog.Logger
}

// Clean deletes everything under restores/<name>/ in the location that the restore's mark names, or
// that of its backup, then the finalizer. When backup or location are gone no files are deleted (Velero 1.18). A
// ReadOnly location that refuses keeps the files and does not hold the object. Other errors leave
// the finalizer: the caller tries again.
func (c *FileCleaner) Clean(ctx context.Context, restore *velerov1.Restore) error {
	if !controllerutil.ContainsFinalizer(restore, velerov1.RestoreFinalizer) {
		return nil
	}
	if err := c.removeFiles(ctx, restore); err != nil {
		return fmt.Errorf("remove the files of restore %q: %w", restore.Name, err)
	}
	err := kube.Update(ctx, c.Reader, c.Client, restore.DeepCopy(), func(o *velerov1.Restore) error {
		if !controllerutil.RemoveFinalizer(o, velerov1.RestoreFinalizer) {
			return kube.ErrSkip
		}
		return nil
	})
	return client.IgnoreNotFound(err)
}

func (c *FileCleaner) removeFiles(ctx context.Context, restore *velerov1.Restore) (err error) {
	name := mark.FilesLocation(restore)
	if name == "" {
		if restore.Spec.BackupName == "" {
			return nil
		}
		backup := &velerov1.Backup{}
		if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: restore.Namespace, Name: restore.Spec.BackupName}, backup); err != nil {
			return client.IgnoreNotFound(err)
		}
		name = backup.Spec.StorageLocation
	}
	loc, err := c.Locations.Get(ctx, name)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	store, err := c.Locations.Open(ctx, loc)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	_, err = objectstore.DeletePrefix(ctx, store, layout.RestoreDir(restore.Name))
	if err == nil || loc.Spec.AccessMode != velerov1.LocationModeReadOnly {
		return err
	}
	if _, away := objectstore.Exists(ctx, store, layout.RestoreLog(restore.Name)); away == nil || retrystore.Refused(err) {
		c.Log.Warn("Failed to remove the files of a deleted restore from a ReadOnly location; they stay", "restore", restore.Name, "error", err)
		return nil
	}
	return err
}
