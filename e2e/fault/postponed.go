package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// prepareKept makes a backup with volume data that nothing here can remove.
func prepareKept(ctx context.Context, b *Bed, name string) error {
	if err := endedBackup(small)(ctx, b, name); err != nil {
		return err
	}
	return b.apiClient.createObject(ctx, newPodVolume(name))
}

func newPodVolume(name string) *velerov1.PodVolumeBackup {
	p := &velerov1.PodVolumeBackup{ObjectMeta: namedMeta(name), Spec: velerov1.PodVolumeBackupSpec{
		Pod: corev1.ObjectReference{Kind: "Pod", Namespace: small, Name: "pod"}, Volume: data, BackupStorageLocation: location,
	}}
	p.Labels = map[string]string{velerov1.LabelBackupName: name}
	p.Status.Phase, p.Status.SnapshotID = "Completed", "snapshot"
	return p
}

func observeKept(ctx context.Context, b *Bed, name string) (Facts, error) {
	request := &velerov1.DeleteBackupRequest{}
	err := pollUntil(ctx, patience, "the deletion of "+name+" is refused", func() (bool, error) {
		_, err := b.apiClient.getObject(ctx, name, request)
		return request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed, err
	})
	if err != nil {
		return nil, err
	}
	backup := &velerov1.Backup{}
	if _, err := b.apiClient.getObject(ctx, name, backup); err != nil {
		return nil, err
	}
	f := Facts{"reasons": strings.Join(request.Status.Errors, "; "), "annotations": fmt.Sprint(request.Annotations), "backup": string(backup.Status.Phase)}
	keys, err := b.bucket.listKeys("backups/" + name)
	for key := range keys {
		f["key "+strings.ReplaceAll(key, name, "NAME")] = "there"
	}
	return f, err
}

func tidyKept(ctx context.Context, b *Bed, name string) error {
	return errors.Join(b.apiClient.removeObject(ctx, newPodVolume(name)), b.apiClient.removeObject(ctx, &velerov1.DeleteBackupRequest{ObjectMeta: namedMeta(name)}))
}
