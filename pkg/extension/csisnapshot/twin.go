package csisnapshot

import (
	"context"
	"maps"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Found is a VolumeSnapshot of the cluster with its content.
type Found struct {
	Snapshot *snapshotv1.VolumeSnapshot
	Content  *snapshotv1.VolumeSnapshotContent // nil while the snapshot is bound to none
	// Handle is the driver's name of the snapshot; empty before it is cut.
	Handle string
	// Ready reports that volumes can be made of it.
	Ready bool
	// Failure is the error that the driver or the snapshot controller reports.
	Failure string
}

// FindSnapshot returns a VolumeSnapshot with its content, which is nil if it does not exist; nil if there is no VolumeSnapshot.
func (a API) FindSnapshot(ctx context.Context, namespace, name string) (*Found, error) {
	p, err := a.readPair(ctx, namespace, name)
	if err != nil || p.snapshot == nil {
		return nil, err
	}
	return &Found{Snapshot: p.snapshot, Content: p.content, Handle: p.snapshotHandle(), Ready: p.content != nil && p.isReady(), Failure: p.failureMessage()}, nil
}

// BuildTwin returns a second pair of objects for the driver's snapshot, by which another namespace can make volumes of
// it. Their removal leaves the snapshot in the driver.
func (f *Found) BuildTwin(meta metav1.ObjectMeta) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	vs := &snapshotv1.VolumeSnapshot{ObjectMeta: meta, Spec: snapshotv1.VolumeSnapshotSpec{
		Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To(meta.Name)}, VolumeSnapshotClassName: f.Content.Spec.VolumeSnapshotClassName,
	}}
	vsc := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name, Labels: maps.Clone(meta.Labels), Annotations: maps.Clone(f.Content.Annotations)},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot", Namespace: meta.Namespace, Name: meta.Name},
			DeletionPolicy:    snapshotv1.VolumeSnapshotContentRetain, Driver: f.Content.Spec.Driver, VolumeSnapshotClassName: f.Content.Spec.VolumeSnapshotClassName,
			Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &f.Handle}, SourceVolumeMode: f.Content.Spec.SourceVolumeMode,
		},
	}
	delete(vsc.Annotations, annotationDeleted)
	if node := f.Content.Labels[labelManagedBy]; node != "" {
		metav1.SetMetaDataLabel(&vsc.ObjectMeta, labelManagedBy, node)
	}
	return vs, vsc
}

// labelManagedBy on a content is the node whose sidecar serves it (external-snapshotter 8.7).
const labelManagedBy = "snapshot.storage.kubernetes.io/managed-by"
