package backupsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// removeOrphans deletes the objects of this location's ended backups that have no directory any
// more. Failed ones stay: they may never have had one (Velero 1.18). An object that stays is read once for
// each of its versions.
func (s *Syncer) removeOrphans(ctx context.Context, loc *velerov1.BackupStorageLocation, store objectstore.Store, backups []metav1.PartialObjectMetadata, stored map[string]bool) error {
	label := velerov1.LabelValue(loc.Name)
	s.forgetUnlisted(backups)
	for i := range backups {
		if backups[i].Labels[velerov1.LabelStorageLocation] != label || stored[backups[i].Name] || s.settled[backups[i].UID] == backups[i].ResourceVersion {
			continue
		}
		b := &velerov1.Backup{}
		if err := s.Reader.Get(ctx, client.ObjectKeyFromObject(&backups[i]), b); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("read backup %q: %w", backups[i].Name, err)
			}
			continue
		}
		ended := b.Status.Phase == velerov1.BackupPhaseCompleted || b.Status.Phase == velerov1.BackupPhasePartiallyFailed
		if !ended {
			s.settled[b.UID] = b.ResourceVersion
			continue
		}
		if b.UID != backups[i].UID || b.ResourceVersion != backups[i].ResourceVersion {
			continue // what changed since the list may be in the bucket by now
		}
		empty, err := isEmpty(ctx, store, layout.BackupDir(b.Name))
		if err != nil {
			return err
		}
		if !empty {
			continue
		}
		failpoint.Hit("manifest-indexer/sync-before-orphan")
		if err := s.removeBackup(ctx, b); err != nil {
			return err
		}
		s.Log.Info("Removed Backup that is no longer in the bucket", "location", loc.Name, "backup", b.Name)
	}
	return nil
}

// forgetUnlisted drops what is settled of Backups that are not in the list, or have another version.
func (s *Syncer) forgetUnlisted(backups []metav1.PartialObjectMetadata) {
	listed := make(map[types.UID]string, len(s.settled))
	for i := range backups {
		if version, ok := s.settled[backups[i].UID]; ok && version == backups[i].ResourceVersion {
			listed[backups[i].UID] = version
		}
	}
	s.settled = listed
}

// removeBackup deletes this very object, not one of the same name made since.
func (s *Syncer) removeBackup(ctx context.Context, b *velerov1.Backup) error {
	err := s.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID, ResourceVersion: ptr.To(b.ResourceVersion)})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete backup %q: %w", b.Name, err)
	}
	return nil
}

func isEmpty(ctx context.Context, store objectstore.Reader, prefix string) (bool, error) {
	empty := true
	err := store.List(ctx, prefix, func(objectstore.Info) error {
		empty = false
		return fs.SkipAll
	})
	if errors.Is(err, objectstore.ErrNotFound) {
		err = nil
	}
	return empty, err
}
