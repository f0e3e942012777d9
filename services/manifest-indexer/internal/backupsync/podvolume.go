package backupsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/klauspost/compress/gzip"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// maxPodVolumes bounds the unpacked list of PodVolumeBackups; one takes about 2 KiB.
	maxPodVolumes = 64 << 20
	// maxLive bounds what they may take in memory: some 10,000 of them.
	maxLive = 128 << 20
)

// importPodVolumeBackups creates the PodVolumeBackups of a backup: a restore reads the objects, not the file.
func (s *Syncer) importPodVolumeBackups(ctx context.Context, loc *velerov1.BackupStorageLocation, store objectstore.Store, backup *velerov1.Backup) error {
	list, err := readPodVolumes(ctx, store, backup.Name)
	if err != nil {
		return err
	}
	for i := range list {
		pvb := &list[i]
		pvb.ObjectMeta = metav1.ObjectMeta{
			Name: pvb.Name, Namespace: s.Namespace, Labels: pvb.Labels, Annotations: pvb.Annotations, OwnerReferences: pvb.OwnerReferences,
		}
		for j := range pvb.OwnerReferences {
			if ref := &pvb.OwnerReferences[j]; ref.Kind == "Backup" && ref.Name == backup.Name {
				ref.UID = backup.UID
			}
		}
		if _, ok := pvb.Labels[velerov1.LabelBackupUID]; ok {
			pvb.Labels[velerov1.LabelBackupUID] = string(backup.UID)
		}
		pvb.Spec.BackupStorageLocation = loc.Name
		if err := s.Client.Create(ctx, pvb); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("PodVolumeBackup %q: %w", pvb.Name, err)
		}
	}
	return nil
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
