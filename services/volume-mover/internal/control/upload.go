package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// A DataUpload is served from a volume that the driver makes of the snapshot. The VolumeSnapshot of the backup and its
// content stay as they are until the request is final. A second pair of both, the twin, has the name of the request in
// the server's namespace and the policy Retain; the claim of that name is made of it, and the mover Pod mounts that. The
// content of the twin is created first and removed last: while it exists, something may be left.

// findReadySnapshot tells whether the mover of a DataUpload can run: its snapshot has to be ready to use.
func (c *Controller) findReadySnapshot(ctx context.Context, r *v2alpha1.DataUpload) (placement, error) {
	s, err := c.findSnapshot(ctx, r)
	if err != nil || s.Ready {
		return placement{ready: err == nil}, err
	}
	name := r.Spec.SourceNamespace + "/" + r.Spec.CSISnapshot.VolumeSnapshot
	if s.Failure != "" && c.Clock.Since(s.Snapshot.CreationTimestamp.Time) > r.Spec.OperationTimeout.Duration {
		return placement{}, &moverpod.RefusalError{Reason: fmt.Sprintf("VolumeSnapshot %s did not become ready: %s", name, s.Failure)}
	}
	return placement{why: strings.TrimSuffix("waits until VolumeSnapshot "+name+" is ready: "+s.Failure, ": ")}, nil
}

// findSnapshot reads the snapshot of the backup.
func (c *Controller) findSnapshot(ctx context.Context, r *v2alpha1.DataUpload) (*csisnapshot.Found, error) {
	if r.Spec.CSISnapshot == nil {
		return nil, &moverpod.RefusalError{Reason: "spec.csiSnapshot is required"}
	}
	s, err := c.snapshots.FindSnapshot(ctx, r.Spec.SourceNamespace, r.Spec.CSISnapshot.VolumeSnapshot)
	switch {
	case errors.Is(err, csisnapshot.ErrNotServed):
		return nil, &moverpod.RefusalError{Reason: err.Error()}
	case err == nil && s == nil:
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("VolumeSnapshot %s/%s is gone", r.Spec.SourceNamespace, r.Spec.CSISnapshot.VolumeSnapshot)}
	}
	return s, err
}

// planUpload makes the volume of a DataUpload and returns its mover Pod.
func (c *Controller) planUpload(ctx context.Context, v view, r *v2alpha1.DataUpload) (*corev1.Pod, error) {
	s, err := c.findSnapshot(ctx, r)
	if err != nil {
		return nil, err
	}
	if s.Handle == "" {
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("VolumeSnapshot %s/%s is not cut", s.Snapshot.Namespace, s.Snapshot.Name)}
	}
	source, pv, err := c.findSource(ctx, v)
	if err != nil {
		return nil, err
	}
	class := &storagev1.StorageClass{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: r.Spec.CSISnapshot.StorageClass}, class); err != nil {
		return nil, fmt.Errorf("no volume can be made of VolumeSnapshot %s/%s: StorageClass: %w", s.Snapshot.Namespace, s.Snapshot.Name, err)
	}
	about := metav1.ObjectMeta{
		Namespace: r.Namespace, Name: r.Name, Labels: moverpod.BuildLabels(v.mover, r.Name), OwnerReferences: []metav1.OwnerReference{v.ownerReference()},
	}
	claim, err := buildSnapshotClaim(about, r, s, source)
	if err != nil {
		return nil, err
	}
	vs, vsc := s.BuildTwin(about)
	if err := c.createContent(ctx, vsc); err != nil {
		return nil, err
	}
	if err := c.createOwned(ctx, v, vs); err != nil {
		return nil, fmt.Errorf("create VolumeSnapshot %s: %w", r.Name, err)
	}
	twin, err := c.snapshots.FindSnapshot(ctx, r.Namespace, r.Name)
	switch {
	case err != nil:
		return nil, err
	case twin == nil || !twin.Ready: // a provisioner that meets it before pauses for longer and longer
		reason := fmt.Sprintf("VolumeSnapshot %s/%s did not become ready", r.Namespace, r.Name)
		if twin != nil && twin.Failure != "" {
			reason += ": " + twin.Failure
		}
		return nil, &notReadyError{reason}
	}
	if err := c.createOwned(ctx, v, claim); err != nil {
		return nil, fmt.Errorf("create PersistentVolumeClaim %s: %w", r.Name, err)
	}
	users, err := c.findUsers(ctx, v)
	if err != nil {
		return nil, err
	}
	upload := moverpod.Upload{
		Namespace: v.namespace, Volume: r.Spec.SourcePVC, ClaimUID: r.Labels[velerov1.LabelPVCUID], OperationID: r.Labels[velerov1.LabelAsyncOperation],
	}
	m := moverpod.Mover{
		Name: r.Name, Owners: about.OwnerReferences, Labels: about.Labels, Claim: r.Name, Block: *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock,
		ReadOnly: true, Args: append(upload.BuildArgs(), v.parallelArgs(settingUploads)...), Tolerations: tolerationsOf(users),
	}
	if pv.Spec.NodeAffinity != nil && waitsForConsumer(class) { // the snapshot is where the volume is; else the volume may be anywhere by now
		m.Nodes = pv.Spec.NodeAffinity.Required
	}
	return moverpod.BuildPod(c.Movers, m), nil
}

// findSource reads the claim that the snapshot is of and its volume; they are empty where they are gone by now.
func (c *Controller) findSource(ctx context.Context, v view) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	claim, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	err := c.Reader.Get(ctx, v.claim, claim)
	if uid := v.GetLabels()[velerov1.LabelPVCUID]; apierrors.IsNotFound(err) || err == nil && uid != "" && uid != string(claim.UID) {
		return &corev1.PersistentVolumeClaim{}, pv, nil
	}
	if err == nil && claim.Spec.VolumeName != "" {
		err = client.IgnoreNotFound(c.Reader.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, pv))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("claim %s: %w", v.claim, err)
	}
	return claim, pv, nil
}

// buildSnapshotClaim returns the claim of a volume that the driver makes of the twin.
func buildSnapshotClaim(about metav1.ObjectMeta, r *v2alpha1.DataUpload, s *csisnapshot.Found, source *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	size := source.Status.Capacity[corev1.ResourceStorage]
	if size.IsZero() {
		size = source.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	if status := s.Content.Status; status != nil && ptr.Deref(status.RestoreSize, 0) > 0 {
		size = *resource.NewQuantity(*status.RestoreSize, resource.BinarySI)
	}
	if size.IsZero() {
		return nil, &moverpod.RefusalError{Reason: fmt.Sprintf("neither VolumeSnapshot %s/%s nor its claim says how large a volume of it is", s.Snapshot.Namespace, s.Snapshot.Name)}
	}
	mode := ptr.Deref(source.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	if m := s.Content.Spec.SourceVolumeMode; m != nil {
		mode = *m
	}
	return &corev1.PersistentVolumeClaim{ObjectMeta: about, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &r.Spec.CSISnapshot.StorageClass, VolumeMode: &mode,
		Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: about.Name},
	}}, nil
}

// createContent creates the content of a twin, which no request can own: it is in no namespace.
func (c *Controller) createContent(ctx context.Context, vsc *snapshotv1.VolumeSnapshotContent) error {
	err := c.Client.Create(ctx, vsc)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	found, err := c.findContent(ctx, vsc.Name)
	if err == nil && found == nil {
		return &moverpod.RefusalError{Reason: fmt.Sprintf("VolumeSnapshotContent %s exists and is not of this request", vsc.Name)}
	}
	return err
}

// findContent reads the content of the twin of a request; nil where there is none.
func (c *Controller) findContent(ctx context.Context, request string) (*snapshotv1.VolumeSnapshotContent, error) {
	vsc := &snapshotv1.VolumeSnapshotContent{}
	err := c.Reader.Get(ctx, client.ObjectKey{Name: request}, vsc)
	switch {
	case isAbsent(err), err == nil && !c.isUploadContent(vsc):
		return nil, nil //nolint:nilnil // no content is a normal answer
	case err != nil:
		return nil, fmt.Errorf("VolumeSnapshotContent %s: %w", request, err)
	}
	return vsc, nil
}

// isUploadContent reports whether a content was made for a request of this namespace.
func (c *Controller) isUploadContent(vsc *snapshotv1.VolumeSnapshotContent) bool {
	ref := vsc.Spec.VolumeSnapshotRef
	return vsc.Labels[moverpod.LabelMover] == moverpod.ValueUpload && ref.Namespace == c.Movers.Namespace && ref.Name == vsc.Name
}

// removeUpload removes what was made for a DataUpload that is final, and then the snapshot itself. The mover Pod
// is removed before. It returns after which time to look again, while something is left.
func (c *Controller) removeUpload(ctx context.Context, v view, r *v2alpha1.DataUpload) (time.Duration, error) {
	vsc, err := c.findContent(ctx, r.Name)
	if err != nil || vsc == nil {
		return 0, err
	}
	claim := &corev1.PersistentVolumeClaim{}
	err = c.Reader.Get(ctx, client.ObjectKeyFromObject(r), claim)
	switch {
	case err == nil && metav1.IsControlledBy(claim, v):
		if err := c.releaseVolume(ctx, claim); err != nil {
			return 0, err
		}
		err = client.IgnoreNotFound(c.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}))
		return time.Second, err // its protection ends with the mover Pod
	case client.IgnoreNotFound(err) != nil:
		return 0, err
	}
	s, err := c.findSnapshot(ctx, r)
	var gone *moverpod.RefusalError
	switch {
	case err == nil && r.Labels[velerov1.LabelBackupName] != "" && s.Snapshot.Labels[velerov1.LabelBackupName] == r.Labels[velerov1.LabelBackupName]:
		err = c.snapshots.Discard(ctx, s.Snapshot.Namespace, s.Snapshot.Name)
	case errors.As(err, &gone):
		err = nil
	}
	if err != nil {
		return 0, err
	}
	return 0, c.removeTwin(ctx, vsc)
}

// removeTwin removes the objects of a twin. The snapshot stays in the driver.
func (c *Controller) removeTwin(ctx context.Context, vsc *snapshotv1.VolumeSnapshotContent) error {
	vs := &snapshotv1.VolumeSnapshot{}
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: vsc.Spec.VolumeSnapshotRef.Namespace, Name: vsc.Name}, vs)
	switch {
	case apierrors.IsNotFound(err):
		vs = nil
	case err != nil:
		return err
	}
	return c.snapshots.Release(ctx, vs, vsc)
}

// removeOrphan removes the twin of a request that is gone; its other objects have the request as their owner.
func (c *Controller) removeOrphan(ctx context.Context, request string) error {
	vsc, err := c.findContent(ctx, request)
	if err != nil || vsc == nil {
		return err
	}
	return c.removeTwin(ctx, vsc)
}

// RemoveOrphans removes the twins of requests that went while no controller ran.
func (c *Controller) RemoveOrphans(ctx context.Context) error {
	var contents snapshotv1.VolumeSnapshotContentList
	err := c.Reader.List(ctx, &contents, client.MatchingLabels{moverpod.LabelMover: moverpod.ValueUpload})
	if isAbsent(err) {
		return nil
	}
	for i := range contents.Items {
		vsc := &contents.Items[i]
		if err != nil || !c.isUploadContent(vsc) {
			continue
		}
		found := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Movers.Namespace, Name: vsc.Name}, &v2alpha1.DataUpload{})
		if apierrors.IsNotFound(found) {
			found = c.removeTwin(ctx, vsc)
		}
		err = found
	}
	return err
}

// maxClockSkew is by how much the clocks of API servers may differ.
const maxClockSkew = time.Minute

// disposeVolume gives the volume of a claim the reclaim policy Delete, whatever its StorageClass says. Kubernetes may have
// bound the claim to a volume that is older and was not made for it: that one keeps its policy, and is an error.
func (c *Controller) disposeVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName == "" {
		return nil
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}}
	err := kube.Update(ctx, c.Reader, c.Client, pv, func(fresh *corev1.PersistentVolume) error {
		if ref := fresh.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
			return kube.ErrSkip
		}
		if fresh.CreationTimestamp.Add(maxClockSkew).Before(claim.CreationTimestamp.Time) {
			return &moverpod.RefusalError{Reason: fmt.Sprintf("PersistentVolume %s, which was there before, was bound to the claim of the mover Pod: bind it to a claim of yours, or remove it", fresh.Name)}
		}
		fresh.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		return nil
	})
	return client.IgnoreNotFound(err)
}

// releaseVolume is disposeVolume for a claim that is removed: that a volume is not disposed of is no error.
func (c *Controller) releaseVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	err := c.disposeVolume(ctx, claim)
	if refusal := (*moverpod.RefusalError)(nil); errors.As(err, &refusal) {
		return nil
	}
	return err
}

// isAbsent reports whether an object does not exist, or is of a kind that the cluster does not serve.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }
