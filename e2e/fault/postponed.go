package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// deleting is the step of a deletion that was admitted and has not looked at restores again.
const deleting = "deletion/claimed"

// prepareRestored makes a backup, and this process the holder of a restore of it.
func prepareRestored(ctx context.Context, b *Bed, name string) error {
	if err := prepareSmall(ctx, b, name); err != nil {
		return err
	}
	return becomeHolder(ctx, b, name)
}

// prepareSmall makes a small backup.
func prepareSmall(ctx context.Context, b *Bed, name string) error {
	if err := beginSmallBackup(ctx, b, name); err != nil {
		return err
	}
	_, err := b.apiClient.awaitEnded(ctx, name)
	return err
}

// beginRestored begins a restore between the admission of a deletion and its second look, and ends
// it when the deletion waits.
func beginRestored(ctx context.Context, b *Bed, name string) error {
	if err := b.points.armPoint(deleting, Stop, 1); err != nil {
		return err
	}
	if err := beginDeletion(ctx, b, name); err != nil {
		return err
	}
	m, err := b.awaitReached(ctx, deleting)
	if err != nil {
		return err
	}
	start := metav1.Now()
	restore := &velerov1.Restore{ObjectMeta: namedMeta(name), Spec: velerov1.RestoreSpec{BackupName: name}}
	restore.Status = velerov1.RestoreStatus{Phase: velerov1.RestorePhaseInProgress, StartTimestamp: &start}
	err = errors.Join(claim.Set(restore, claim.Claim{Owner: holderOf(name), Epoch: 1}), b.apiClient.createObject(ctx, restore))
	if err := errors.Join(err, m.Signal(syscall.SIGCONT), b.points.forgetPoint(deleting)); err != nil {
		return err
	}
	request := &velerov1.DeleteBackupRequest{}
	err = pollUntil(ctx, patience, "the deletion of "+name+" waits", func() (bool, error) {
		found, err := b.apiClient.getObject(ctx, name, request)
		if err == nil && !found {
			err = fmt.Errorf("%w: the backup is deleted during its restore", ErrDiffers)
		}
		return len(request.Status.Errors) > 0, err
	})
	if err != nil {
		return err
	}
	return kube.Update(ctx, b.client, b.client, restore, func(r *velerov1.Restore) error {
		r.Status.Phase = velerov1.RestorePhaseCompleted
		return nil
	})
}

// prepareKept makes a backup with volume data that nothing here can remove.
func prepareKept(ctx context.Context, b *Bed, name string) error {
	if err := prepareSmall(ctx, b, name); err != nil {
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
