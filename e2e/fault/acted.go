package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	actions = "fault-actions" // a namespace with the object that item actions are called for
	long    = "fault-long"    // the same, where they begin operations
	volumes = "fault-volumes" // a namespace with a claim, whose volume has its name
	data    = "data"          // the claim
)

// plantActed makes what plugins are called for.
func (b *Bed) plantActed(ctx context.Context) error {
	template := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: actions, Name: "one", Annotations: map[string]string{callsKey: b.called}},
		Template:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}}}},
	}
	longer := template.DeepCopy()
	longer.Namespace, longer.Labels = long, map[string]string{longLabel: "true"}
	none, size := "", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volumes}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		ClaimRef:               &corev1.ObjectReference{Namespace: volumes, Name: data},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: volumes, Name: data}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &none, VolumeName: volumes, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: size},
	}}
	if err := errors.Join(b.apiClient.createObject(ctx, template), b.apiClient.createObject(ctx, longer), b.apiClient.createObject(ctx, volume), b.apiClient.createObject(ctx, claim)); err != nil {
		return err
	}
	return pollUntil(ctx, patience, "claim "+data+" is bound", func() (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		return claim.Status.Phase == corev1.ClaimBound, err
	})
}

// addOperations adds the counts of operations of a backup.
func addOperations(ctx context.Context, b *Bed, name string, f Facts) error {
	backup, err := b.apiClient.awaitEnded(ctx, name)
	s := &backup.Status
	f["operations"] = fmt.Sprintf("%d of %d completed, %d failed", s.BackupItemOperationsCompleted, s.BackupItemOperationsAttempted, s.BackupItemOperationsFailed)
	return err
}

// addRestoreOperations adds those of a restore.
func addRestoreOperations(ctx context.Context, b *Bed, name string, f Facts) error {
	restore, err := b.apiClient.awaitRestored(ctx, name)
	s := &restore.Status
	f["operations"] = fmt.Sprintf("%d of %d completed, %d failed", s.RestoreItemOperationsCompleted, s.RestoreItemOperationsAttempted, s.RestoreItemOperationsFailed)
	return err
}

// addCalls adds how often plugins were called.
func addCalls(_ context.Context, b *Bed, name string, f Facts) error {
	counts, err := b.callCounts(name)
	for what, n := range counts {
		f["calls "+what] = strconv.Itoa(n)
	}
	return err
}

func newSnapshotLocation(name, calls string) *velerov1.VolumeSnapshotLocation {
	return &velerov1.VolumeSnapshotLocation{
		ObjectMeta: namedMeta(name), Spec: velerov1.VolumeSnapshotLocationSpec{Provider: snapshotter, Config: map[string]string{callsKey: calls}},
	}
}

// prepareSnapshots makes the location, which is there for this scenario alone: it would be every
// backup's.
func prepareSnapshots(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, newSnapshotLocation(name, b.called))
}

func beginSnapshots(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.createObject(ctx, &velerov1.Backup{ObjectMeta: namedMeta(name), Spec: velerov1.BackupSpec{
		IncludedNamespaces: []string{volumes}, SnapshotVolumes: new(true), VolumeSnapshotLocations: []string{name},
	}})
}

func removeSnapshotLocation(ctx context.Context, b *Bed, name string) error {
	return b.apiClient.removeObject(ctx, newSnapshotLocation(name, ""))
}

// addCleaned adds that the action of a deletion, which fails once, was called again. How often it is called may
// differ: what it did is recorded afterwards.
func addCleaned(_ context.Context, b *Bed, name string, f Facts) error {
	counts, err := b.callCounts(name)
	f["cleaned after the failure"] = strconv.FormatBool(counts["clean"] > 1)
	return err
}
