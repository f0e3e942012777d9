package backupsync

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// maxMetadata bounds velero-backup.json: an API server takes no object over about 3 MiB.
const maxMetadata = 8 << 20

// backupError is content of the bucket that no retry will make better.
type backupError struct{ err error }

func (b *backupError) Error() string { return b.err.Error() }

// importBackup creates the object for a backup that has none. Directories without
// velero-backup.json are backups being written or left-overs, and none of our business.
func (s *Syncer) importBackup(ctx context.Context, loc *velerov1.BackupStorageLocation, store objectstore.Store, name string) error {
	if err := layout.CheckName(name); err != nil {
		return &backupError{err}
	}
	data, err := objectstore.ReadAll(ctx, store, layout.BackupMetadata(name), maxMetadata)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil
	case errors.Is(err, objectstore.ErrSize):
		return &backupError{err}
	case err != nil:
		return err
	}
	backup, err := decodeBackup(data, name)
	if err != nil {
		return &backupError{err}
	}
	if !s.isImportable(backup) {
		return nil
	}
	if away, err := s.isBeingDeleted(ctx, store, backup); away || err != nil {
		return err
	}
	if err := s.adoptBackup(ctx, backup, loc); err != nil {
		return err
	}
	failpoint.Hit("manifest-indexer/sync-before-create")
	err = s.Client.Create(ctx, backup)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsInvalid(err):
		return &backupError{err}
	case err != nil:
		return err
	}
	failpoint.Hit("manifest-indexer/sync-created")
	if gone, err := s.undoIfDeleted(ctx, store, backup); gone || err != nil {
		return err
	}
	failpoint.Hit("manifest-indexer/sync-confirmed")
	s.Log.Info("Imported backup from the bucket", "location", loc.Name, "backup", name)
	return s.importPodVolumeBackups(ctx, loc, store, backup)
}

// isBeingDeleted reports that the backup is being deleted, by another cluster or by a process that died
// over it: its tarball, which goes first, is gone. One that failed need not have had any.
func (s *Syncer) isBeingDeleted(ctx context.Context, store objectstore.Reader, b *velerov1.Backup) (bool, error) {
	if b.Status.Phase == velerov1.BackupPhaseFailed {
		return false, nil
	}
	there, err := objectstore.Exists(ctx, store, layout.BackupTarball(b.Name))
	if there || err != nil {
		return false, err
	}
	s.Log.Info("Backup in the bucket has no tarball, so it is damaged or being deleted; it is not synced", "backup", b.Name)
	return true, nil
}

func decodeBackup(data []byte, name string) (*velerov1.Backup, error) {
	backup := &velerov1.Backup{}
	if err := jsonlimit.Unmarshal(data, backup, jsonlimit.Object); err != nil {
		return nil, fmt.Errorf("velero-backup.json: %w", err)
	}
	if gvk := backup.GroupVersionKind(); gvk.Kind != "Backup" || gvk.GroupVersion() != velerov1.GroupVersion {
		return nil, fmt.Errorf("velero-backup.json: holds %s, not a velero.io/v1 Backup", gvk)
	}
	if backup.Name != name {
		return nil, fmt.Errorf("velero-backup.json: metadata.name is %q in the directory of %q", backup.Name, name)
	}
	return backup, nil
}

// isImportable takes ended backups, and those that were left unfinished so long ago that they
// expired; those count as partially failed (Velero 1.18).
func (s *Syncer) isImportable(b *velerov1.Backup) bool {
	switch b.Status.Phase {
	case velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed:
		if b.Status.Expiration == nil || b.Status.Expiration.After(s.Clock.Now()) {
			return false
		}
		b.Status.Phase = velerov1.BackupPhasePartiallyFailed
		return true
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed:
		return true
	default:
		return false
	}
}

// adoptBackup makes the object this cluster's: what the other API server and other processes knew does
// not hold here.
func (s *Syncer) adoptBackup(ctx context.Context, b *velerov1.Backup, loc *velerov1.BackupStorageLocation) error {
	owners, err := s.keptOwners(ctx, b.OwnerReferences)
	if err != nil {
		return err
	}
	b.ObjectMeta = s.importedMeta(b.ObjectMeta)
	b.OwnerReferences = owners
	b.Labels[velerov1.LabelStorageLocation] = velerov1.LabelValue(loc.Name)
	b.Spec.StorageLocation = loc.Name
	b.Status.QueuePosition = 0
	return nil
}

// importedMeta keeps the name, labels and annotations of what a bucket holds. Holdfast's own are
// dropped, such as claims, requests to cancel and the permission to delete without volume data:
// they are about an object in another cluster, or forged by a writer of the bucket. Finalizers are
// dropped because no controller here would remove them.
func (s *Syncer) importedMeta(from metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: from.Name, Namespace: s.Namespace, Labels: foreignEntries(from.Labels), Annotations: foreignEntries(from.Annotations)}
}

// foreignEntries returns the entries whose key has no prefix of Holdfast, never nil.
func foreignEntries(from map[string]string) map[string]string {
	kept := make(map[string]string, len(from))
	for key, value := range from {
		if !strings.HasPrefix(key, holdfast.Prefix) {
			kept[key] = value
		}
	}
	return kept
}

// keptOwners keeps a Schedule only where that very Schedule exists; with another UID the garbage
// collector would delete the backup.
func (s *Syncer) keptOwners(ctx context.Context, refs []metav1.OwnerReference) ([]metav1.OwnerReference, error) {
	var kept []metav1.OwnerReference
	for _, ref := range refs {
		if ref.Kind != "Schedule" {
			kept = append(kept, ref)
			continue
		}
		var schedule velerov1.Schedule
		err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: ref.Name}, &schedule)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil && schedule.UID == ref.UID {
			kept = append(kept, ref)
		}
	}
	return kept, nil
}

// undoIfDeleted takes back an object whose backup was deleted, or began to be, while it was
// created. Should this process die first, the next sync finds an object without a directory.
func (s *Syncer) undoIfDeleted(ctx context.Context, store objectstore.Store, b *velerov1.Backup) (gone bool, err error) {
	there, err := objectstore.Exists(ctx, store, layout.BackupMetadata(b.Name))
	if err != nil {
		return false, err
	}
	if there {
		if gone, err = s.isBeingDeleted(ctx, store, b); !gone || err != nil {
			return false, err
		}
	}
	return true, s.removeBackup(ctx, b)
}
