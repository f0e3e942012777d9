package backupsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/klauspost/compress/gzip"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// maxPodVolumes bounds the unpacked list of PodVolumeBackups; one takes about 2 KiB.
	maxPodVolumes = 64 << 20
	// maxLive bounds what they may take in memory: some 10,000 of them.
	maxLive = 128 << 20
)

// importPodVolumeBackups creates the PodVolumeBackups of a backup: a restore reads the objects, not
// the file.
func (s *Syncer) importPodVolumeBackups(ctx context.Context, loc *velerov1.BackupStorageLocation, store objectstore.Store, backup *velerov1.Backup) error {
	list, err := readPodVolumes(ctx, store, backup.Name)
	if err != nil {
		return err
	}
	for i := range list {
		pvb := &list[i]
		if why := unfitReason(pvb, backup); why != "" {
			s.reportPodVolume(loc, backup, pvb, why)
			continue
		}
		s.adoptPodVolume(pvb, loc, backup)
		err := s.Client.Create(ctx, pvb)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
		case apierrors.IsInvalid(err):
			s.reportPodVolume(loc, backup, pvb, err.Error())
		default:
			return fmt.Errorf("PodVolumeBackup %q: %w", pvb.Name, err)
		}
	}
	return nil
}

// reportPodVolume reports an entry that is not imported: a restore will miss its volume.
func (s *Syncer) reportPodVolume(loc *velerov1.BackupStorageLocation, backup *velerov1.Backup, pvb *velerov1.PodVolumeBackup, reason string) {
	s.Log.Warn("PodVolumeBackup in the bucket is not imported", "location", loc.Name, "backup", backup.Name, "podVolumeBackup", pvb.Name, "reason", reason)
	mark.RecordWarning(s.Events, loc, "VolumeNotSynced", "Sync", fmt.Sprintf("PodVolumeBackup %q of backup %q is not imported: %s", pvb.Name, backup.Name, reason))
}

// unfitReason returns why an entry is not imported; empty when it is. A node agent of Velero runs
// whatever is not in a terminal phase, with the Pod and node that it names, and a restore takes the
// entries that are labelled with its backup's name.
func unfitReason(pvb *velerov1.PodVolumeBackup, backup *velerov1.Backup) string {
	switch pvb.Status.Phase {
	case velerov1.PodVolumePhaseCompleted, velerov1.PodVolumePhaseFailed, velerov1.PodVolumePhaseCanceled:
	default:
		return "its phase is not terminal"
	}
	if pvb.Labels[velerov1.LabelBackupName] != velerov1.LabelValue(backup.Name) {
		return "its label names another backup"
	}
	return ""
}

// adoptPodVolume makes the object this cluster's, owned by the backup alone.
func (s *Syncer) adoptPodVolume(pvb *velerov1.PodVolumeBackup, loc *velerov1.BackupStorageLocation, backup *velerov1.Backup) {
	owners := pvb.OwnerReferences
	pvb.ObjectMeta = s.importedMeta(pvb.ObjectMeta)
	for _, ref := range owners {
		if ref.Kind == "Backup" && ref.Name == backup.Name {
			ref.UID = backup.UID
			pvb.OwnerReferences = append(pvb.OwnerReferences, ref)
		}
	}
	if _, ok := pvb.Labels[velerov1.LabelBackupUID]; ok {
		pvb.Labels[velerov1.LabelBackupUID] = string(backup.UID)
	}
	pvb.Spec.BackupStorageLocation = loc.Name
}

func readPodVolumes(ctx context.Context, store objectstore.Reader, backup string) (_ []velerov1.PodVolumeBackup, err error) {
	rc, err := store.Get(ctx, layout.BackupPodVolumeBackups(backup))
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	unzip, err := gzip.NewReader(rc)
	if err != nil {
		return nil, &backupError{fmt.Errorf("podvolumebackups: %w", err)}
	}
	var list []velerov1.PodVolumeBackup
	limits := jsonlimit.Limits{Text: maxPodVolumes, Element: 1 << 20, Decoded: 16 << 20, Kept: maxLive}
	err = jsonlimit.Each(unzip, limits, func(pvb *velerov1.PodVolumeBackup) error {
		list = append(list, *pvb)
		return nil
	})
	if err != nil {
		return nil, &backupError{fmt.Errorf("podvolumebackups: %w", err)}
	}
	return list, nil
}
