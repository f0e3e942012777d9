package csitest

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotationNode names the node that a claim is provisioned for, whose class waits for a consumer.
const annotationNode = "volume.kubernetes.io/selected-node"

// File returns the file of a volume.
func (d *Driver) File(volume string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[volume]
}

// Keep stores a snapshot that was taken elsewhere, with the file that its volume had.
func (d *Driver) Keep(handle, content string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stored == nil {
		d.looks, d.stored = map[string]int{}, map[string]string{}
	}
	if d.cuts == nil {
		d.cuts = map[string]string{}
	}
	d.stored[handle], d.cuts[handle] = "elsewhere", content
}

// Forget loses a snapshot.
func (d *Driver) Forget(handle string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.stored, handle)
}

// Made returns how many volumes were made of snapshots.
func (d *Driver) Made() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made
}

// provisionClaims does the work of the driver's provisioner for the claims that are to be filled from a
// snapshot.
func (d *Driver) provisionClaims(ctx context.Context) error {
	var claims corev1.PersistentVolumeClaimList
	if err := d.Client.List(ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		from := c.Spec.DataSource
		if c.Status.Phase == corev1.ClaimBound || c.DeletionTimestamp != nil || from == nil || from.Kind != "VolumeSnapshot" {
			continue
		}
		if err := d.fillClaim(ctx, c, from.Name); err != nil && !isConflict(err) {
			return err
		}
	}
	return nil
}

// fillClaim makes the volume of a claim, once its snapshot is ready.
func (d *Driver) fillClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, snapshot string) error {
	var class storagev1.StorageClass
	if err := d.Client.Get(ctx, client.ObjectKey{Name: ptr.Deref(claim.Spec.StorageClassName, "")}, &class); err != nil || class.Provisioner != d.Name {
		return err
	}
	waits := ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
	if waits && claim.Annotations[annotationNode] == "" {
		return nil
	}
	var vs snapshotv1.VolumeSnapshot
	if err := d.Client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: snapshot}, &vs); err != nil {
		return err
	}
	if vs.Status == nil || !ptr.Deref(vs.Status.ReadyToUse, false) {
		return nil
	}
	var vsc snapshotv1.VolumeSnapshotContent
	if err := d.Client.Get(ctx, client.ObjectKey{Name: ptr.Deref(vs.Status.BoundVolumeSnapshotContentName, "")}, &vsc); err != nil {
		return err
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if vsc.Status == nil || vsc.Status.SnapshotHandle == nil || size.Value() < Size {
		return nil
	}
	pv := d.copySnapshot(claim, &class, *vsc.Status.SnapshotHandle)
	if pv == nil {
		return nil
	}
	if err := d.Client.Create(ctx, pv); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if !d.Bind {
		return nil
	}
	bound := claim.DeepCopy()
	bound.Spec.VolumeName, bound.Status.Phase = pv.Name, corev1.ClaimBound
	return d.Client.Patch(ctx, bound, client.MergeFrom(claim))
}

// copySnapshot makes the volume of a snapshot for a claim, once; nil where the driver has no such snapshot.
func (d *Driver) copySnapshot(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, snapshot string) *corev1.PersistentVolume {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.stored[snapshot]; !known {
		return nil
	}
	name := "pvc-" + string(claim.UID)
	if _, twice := d.files[name]; !twice {
		if d.files == nil {
			d.files = map[string]string{}
		}
		d.files[name] = d.cuts[snapshot]
		d.made++
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: d.Name, VolumeHandle: name}},
		},
	}
}
