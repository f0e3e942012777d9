// Package csitest has, for unit tests, a snapshot controller with a driver that keeps its snapshots in
// memory. It answers VolumeSnapshots as external-snapshotter does, and claims that are filled from
// them as external-provisioner does, without a node or a storage system, and fails on request.
package csitest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Finalizers of external-snapshotter.
const (
	FinalizerSnapshot = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	FinalizerContent  = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
)

// AnnotationDeleted of external-snapshotter is on contents whose VolumeSnapshot is being deleted.
const AnnotationDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"

// Size is what a volume of a snapshot needs, in bytes.
const Size = 5 << 30

// Behaviour is what the driver does about the snapshots of a claim.
type Behaviour struct {
	// Cut and Ready are the number of calls of Look after which the snapshot has a handle, and is
	// ready; negative is never.
	Cut, Ready int
	// Error is in the status of the content until the snapshot is ready.
	Error string
}

// Driver is the controller and the driver. Its fields must not change while it runs; its methods are
// safe for concurrent use.
type Driver struct {
	// Client is uncached.
	Client client.Client
	// Name is the driver's.
	Name string
	// Provision has claims be filled from snapshots. Bind binds them as well, which real clusters do by
	// themselves.
	Provision, Bind bool

	mu     sync.Mutex
	claims map[string]Behaviour // by namespace/name
	looks  map[string]int       // by the UID of the content
	stored map[string]string    // volume handles by snapshot handle
	files  map[string]string    // by volume handle
	cuts   map[string]string    // the files of snapshots
	taken  int
	made   int
}

// Behave sets what the driver does about a claim, "namespace/name".
func (d *Driver) Behave(claim string, b Behaviour) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claims == nil {
		d.claims = map[string]Behaviour{}
	}
	d.claims[claim] = b
}

// Stored returns the handles of the snapshots that the driver has, sorted.
func (d *Driver) Stored() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.stored))
}

// Taken returns how many snapshots were taken.
func (d *Driver) Taken() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken
}

// Run works on the cluster every period until ctx ends. What fails is given to failed, and tried
// again.
func (d *Driver) Run(ctx context.Context, period time.Duration, failed func(error)) {
	ticker := clock.RealClock{}.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := d.ReconcileOnce(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// ReconcileOnce reconciles all objects once.
func (d *Driver) ReconcileOnce(ctx context.Context) error {
	var snapshots snapshotv1.VolumeSnapshotList
	if err := d.Client.List(ctx, &snapshots); err != nil {
		return err
	}
	for i := range snapshots.Items {
		if err := d.reconcileSnapshot(ctx, &snapshots.Items[i]); err != nil && !isConflict(err) {
			return err
		}
	}
	var contents snapshotv1.VolumeSnapshotContentList
	if err := d.Client.List(ctx, &contents); err != nil {
		return err
	}
	for i := range contents.Items {
		if err := d.reconcileContent(ctx, &contents.Items[i]); err != nil && !isConflict(err) {
			return err
		}
	}
	if !d.Provision {
		return nil
	}
	return d.provisionClaims(ctx)
}

// isConflict errors come of others that write the same object.
func isConflict(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// reconcileSnapshot does the work of the snapshot controller for a VolumeSnapshot.
func (d *Driver) reconcileSnapshot(ctx context.Context, vs *snapshotv1.VolumeSnapshot) error {
	name := "snapcontent-" + string(vs.UID)
	if own := vs.Spec.Source.VolumeSnapshotContentName; own != nil {
		name = *own
	}
	vsc := &snapshotv1.VolumeSnapshotContent{}
	err := d.Client.Get(ctx, client.ObjectKey{Name: name}, vsc)
	missing := apierrors.IsNotFound(err)
	switch {
	case err != nil && !missing:
		return err
	case vs.DeletionTimestamp != nil && !missing && vsc.Spec.VolumeSnapshotRef.UID == vs.UID:
		return d.reconcileDeletion(ctx, vs, vsc)
	case vs.DeletionTimestamp != nil:
		return d.setFinalizer(ctx, vs, FinalizerSnapshot, false)
	case vs.Spec.Source.PersistentVolumeClaimName == nil && missing:
		return nil // its content has to come
	case missing && vs.Status != nil && ptr.Deref(vs.Status.ReadyToUse, false):
		old := vs.DeepCopy()
		vs.Status.ReadyToUse = ptr.To(false)
		return d.Client.Patch(ctx, vs, client.MergeFrom(old))
	case missing: // also if there was one
		if vsc, err = d.makeContent(ctx, vs, name); err != nil || vsc == nil {
			return err
		}
	case vsc.Spec.VolumeSnapshotRef.UID == "":
		bound := vsc.DeepCopy()
		bound.Spec.VolumeSnapshotRef.UID = vs.UID
		if err := d.Client.Patch(ctx, bound, client.MergeFrom(vsc)); err != nil {
			return err
		}
	}
	if err := d.setFinalizer(ctx, vs, FinalizerSnapshot, true); err != nil {
		return err
	}
	return d.mirrorStatus(ctx, vs, vsc)
}

// reconcileDeletion does the work of the snapshot controller for a VolumeSnapshot that is being deleted. It
// stays while a content that is deleted with it does.
func (d *Driver) reconcileDeletion(ctx context.Context, vs *snapshotv1.VolumeSnapshot, vsc *snapshotv1.VolumeSnapshotContent) error {
	marked := vsc.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, AnnotationDeleted, "yes")
	if err := d.Client.Patch(ctx, marked, client.MergeFrom(vsc)); err != nil {
		return err
	}
	if vsc.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
		return d.Client.Delete(ctx, vsc)
	}
	return d.setFinalizer(ctx, vs, FinalizerSnapshot, false)
}

// mirrorStatus copies the status of a content to its VolumeSnapshot.
func (d *Driver) mirrorStatus(ctx context.Context, vs *snapshotv1.VolumeSnapshot, vsc *snapshotv1.VolumeSnapshotContent) error {
	old := vs.DeepCopy()
	vs.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &vsc.Name, ReadyToUse: ptr.To(false)}
	if s := vsc.Status; s != nil {
		vs.Status.ReadyToUse, vs.Status.Error = ptr.To(ptr.Deref(s.ReadyToUse, false)), s.Error
		if s.CreationTime != nil {
			vs.Status.CreationTime = &metav1.Time{Time: time.Unix(0, *s.CreationTime).UTC().Truncate(time.Second)}
		}
		if s.RestoreSize != nil {
			vs.Status.RestoreSize = apiresource.NewQuantity(*s.RestoreSize, apiresource.BinarySI)
		}
	}
	return d.Client.Patch(ctx, vs, client.MergeFrom(old))
}

// makeContent makes the content of a VolumeSnapshot; nil where its claim or class is of no use.
func (d *Driver) makeContent(ctx context.Context, vs *snapshotv1.VolumeSnapshot, name string) (*snapshotv1.VolumeSnapshotContent, error) {
	claim, pv, class := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &snapshotv1.VolumeSnapshotClass{}
	if err := d.Client.Get(ctx, client.ObjectKey{Namespace: vs.Namespace, Name: *vs.Spec.Source.PersistentVolumeClaimName}, claim); err != nil {
		return nil, err
	}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv); err != nil {
		return nil, err
	}
	if err := d.Client.Get(ctx, client.ObjectKey{Name: ptr.Deref(vs.Spec.VolumeSnapshotClassName, "")}, class); err != nil {
		return nil, err
	}
	if class.Driver != d.Name || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != d.Name {
		return nil, nil
	}
	vsc := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{FinalizerContent}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot",
				Namespace: vs.Namespace, Name: vs.Name, UID: vs.UID},
			DeletionPolicy: class.DeletionPolicy, Driver: d.Name, VolumeSnapshotClassName: &class.Name,
			Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &pv.Spec.CSI.VolumeHandle},
		},
	}
	return vsc, d.Client.Create(ctx, vsc)
}

// reconcileContent does the work of the driver's sidecar for a VolumeSnapshotContent.
func (d *Driver) reconcileContent(ctx context.Context, vsc *snapshotv1.VolumeSnapshotContent) error {
	if vsc.Spec.Driver != d.Name {
		return nil
	}
	if vsc.DeletionTimestamp != nil {
		return d.removeContent(ctx, vsc)
	}
	if err := d.setFinalizer(ctx, vsc, FinalizerContent, true); err != nil {
		return err
	}
	if s := vsc.Status; s != nil && ptr.Deref(s.ReadyToUse, false) {
		return nil
	}
	old := vsc.DeepCopy()
	vsc.Status = d.contentProgress(ctx, vsc)
	return d.Client.Patch(ctx, vsc, client.MergeFrom(old))
}

// contentProgress takes the snapshot of a content as far as it has come.
func (d *Driver) contentProgress(ctx context.Context, vsc *snapshotv1.VolumeSnapshotContent) *snapshotv1.VolumeSnapshotContentStatus {
	s := &snapshotv1.VolumeSnapshotContentStatus{ReadyToUse: ptr.To(false)}
	claim := ""
	vs := &snapshotv1.VolumeSnapshot{}
	if err := d.Client.Get(ctx, client.ObjectKey{Namespace: vsc.Spec.VolumeSnapshotRef.Namespace, Name: vsc.Spec.VolumeSnapshotRef.Name}, vs); err == nil {
		claim = vs.Namespace + "/" + ptr.Deref(vs.Spec.Source.PersistentVolumeClaimName, "")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looks == nil {
		d.looks, d.stored = map[string]int{}, map[string]string{}
	}
	b, n := d.claims[claim], d.looks[string(vsc.UID)]
	d.looks[string(vsc.UID)]++
	switch handle := vsc.Spec.Source.SnapshotHandle; {
	case handle != nil:
		if _, known := d.stored[*handle]; !known {
			s.Error = &snapshotv1.VolumeSnapshotError{Time: ptr.To(metav1.Now()), Message: ptr.To("snapshot " + *handle + " does not exist")}
			return s
		}
		s.SnapshotHandle, s.ReadyToUse = handle, ptr.To(true)
	case b.Cut >= 0 && n >= b.Cut:
		handle := "physical-" + string(vsc.Spec.VolumeSnapshotRef.UID)
		if _, twice := d.stored[handle]; !twice {
			d.stored[handle] = ptr.Deref(vsc.Spec.Source.VolumeHandle, "")
			if d.cuts == nil {
				d.cuts = map[string]string{}
			}
			d.cuts[handle] = d.files[d.stored[handle]]
			d.taken++
		}
		s.SnapshotHandle = &handle
		s.ReadyToUse = ptr.To(b.Ready >= 0 && n >= b.Ready)
	}
	if s.SnapshotHandle != nil {
		s.CreationTime, s.RestoreSize = ptr.To(clock.RealClock{}.Now().UnixNano()), ptr.To(int64(Size))
	}
	if b.Error != "" && !*s.ReadyToUse {
		s.Error = &snapshotv1.VolumeSnapshotError{Time: ptr.To(metav1.Now()), Message: &b.Error}
	}
	return s
}

// removeContent ends a content that is being deleted, which needs its annotation unless no VolumeSnapshot
// was ever bound to it. Only a snapshot whose handle is in the status is removed.
func (d *Driver) removeContent(ctx context.Context, vsc *snapshotv1.VolumeSnapshotContent) error {
	unbound := vsc.Spec.Source.SnapshotHandle != nil && vsc.Spec.VolumeSnapshotRef.UID == ""
	if !unbound && vsc.Annotations[AnnotationDeleted] == "" {
		return nil
	}
	if vsc.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete && vsc.Status != nil && vsc.Status.SnapshotHandle != nil {
		d.Forget(*vsc.Status.SnapshotHandle)
	}
	return d.setFinalizer(ctx, vsc, FinalizerContent, false)
}

// setFinalizer adds a finalizer to an object, or removes it.
func (d *Driver) setFinalizer(ctx context.Context, o client.Object, name string, wanted bool) error {
	if slices.Contains(o.GetFinalizers(), name) == wanted {
		return nil
	}
	old := o.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of what it copies
	if wanted {
		o.SetFinalizers(append(o.GetFinalizers(), name))
	} else {
		o.SetFinalizers(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == name }))
	}
	return d.Client.Patch(ctx, o, client.MergeFrom(old))
}
