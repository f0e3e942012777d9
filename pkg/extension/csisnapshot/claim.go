package csisnapshot

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// Actions returns the actions of the backup.
func (s *Snapshotter) Actions() []action.BackupItem {
	return []action.BackupItem{
		&claimAction{named{NameClaim, claims}, s}, &snapshotAction{named{NameSnapshot, Snapshots}, s},
		secretAction{named{NameContent, Contents}, "csi.storage.k8s.io/snapshotter-secret-name", "csi.storage.k8s.io/snapshotter-secret-namespace"},
		secretAction{named{NameClass, Classes}, "csi.storage.k8s.io/snapshotter-list-secret-name", "csi.storage.k8s.io/snapshotter-list-secret-namespace"},
	}
}

// claimAction takes a snapshot of the volume of a claim, and returns when it is cut.
type claimAction struct {
	named
	*Snapshotter
}

var (
	_ action.BackupStarter    = (*claimAction)(nil)
	_ action.BackupOperations = (*claimAction)(nil)
	_ action.Prestarter       = (*claimAction)(nil)
)

// OperationKind implements action.BackupOperations.
func (*claimAction) OperationKind() string { return kind }

// Execute implements action.BackupItem.
func (a *claimAction) Execute(context.Context, *action.Object, *action.Backup) (action.BackupResult, error) {
	return action.BackupResult{}, fmt.Errorf("action %s: Execute: it takes a key", a.name)
}

// Start implements action.BackupStarter. A claim of which no snapshot is to be taken is left alone,
// but for the name of a snapshot that an earlier backup or restore left on it.
func (a *claimAction) Start(ctx context.Context, o *action.Object, _ *action.Backup, key string) (r action.BackupResult, err error) {
	defer a.guardPanic(&err)
	c, err := decodeClaim(o)
	if err != nil {
		return r, err
	}
	of, err := a.findSubject(ctx, c, key)
	if err != nil {
		return r, err
	}
	if of == nil {
		return claimWithoutSnapshot(o, c)
	}
	if a.Movement != nil {
		return a.moveClaim(ctx, o, of)
	}
	h, err := a.holdVolume(ctx, of)
	if err != nil {
		return r, err
	}
	vs, vsc, err := a.takeSnapshot(ctx, of, h)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err != nil {
		return r, err
	}
	return a.claimWithSnapshot(o, vs, vsc)
}

// discardLimit bounds the removal of a snapshot that is of no use.
const discardLimit = 30 * time.Second

// takeSnapshot takes the snapshot of a volume that is locked, and unlocks it once the snapshot is cut or
// cannot be. What fails leaves none. Where ctx ends and nothing is known of the snapshot, the volume
// stays locked for the backup.
func (s *Snapshotter) takeSnapshot(ctx context.Context, of *snapshotSubject, h *heldVolume) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent, error) {
	made, err := s.createSnapshot(ctx, of)
	if err != nil {
		if ctx.Err() == nil {
			h.unlock()
		}
		return nil, nil, err
	}
	vs, vsc, err := s.awaitHandle(ctx, made, h.began)
	s.releaseVolume(ctx, h, made, err)
	if err == nil {
		vs, err = s.annotatePair(ctx, vs, vsc)
	}
	if err != nil && ctx.Err() == nil {
		s.discardUnnamed(ctx, client.ObjectKeyFromObject(made))
	}
	return vs, vsc, err
}

// discardUnnamed removes a snapshot that the backup does not name.
func (s *Snapshotter) discardUnnamed(ctx context.Context, snapshot client.ObjectKey) {
	removing, done := context.WithTimeout(ctx, discardLimit)
	defer done()
	if err := s.Discard(removing, snapshot.Namespace, snapshot.Name); err != nil {
		s.Log.WarnContext(ctx, "Failed to delete VolumeSnapshot that the backup does not use; it is deleted when the backup ends", "snapshot", snapshot.String(), "error", err)
	}
}

// annotatePair writes on snapshot and content what restores and deletions go by.
func (s *Snapshotter) annotatePair(ctx context.Context, vs *snapshotv1.VolumeSnapshot, vsc *snapshotv1.VolumeSnapshotContent) (*snapshotv1.VolumeSnapshot, error) {
	labelled := vsc.DeepCopy()
	if labelled.Labels == nil {
		labelled.Labels = map[string]string{}
	}
	for key, value := range s.backupLabels() {
		labelled.Labels[key] = value
	}
	err := s.retryCall(ctx, "label VolumeSnapshotContent "+vsc.Name, func() error {
		return s.Client.Patch(ctx, labelled.DeepCopy(), client.MergeFrom(vsc))
	})
	if err != nil {
		return nil, err
	}
	annotated := vs.DeepCopy()
	for key, value := range snapshotAnnotations(vsc) {
		annotated.Annotations[key] = value
	}
	err = s.retryCall(ctx, "annotate VolumeSnapshot "+vs.Namespace+"/"+vs.Name, func() error {
		return s.Client.Patch(ctx, annotated.DeepCopy(), client.MergeFrom(vs))
	})
	return annotated, err
}

// snapshotAnnotations are those of a VolumeSnapshot (Velero 1.18).
func snapshotAnnotations(vsc *snapshotv1.VolumeSnapshotContent) map[string]string {
	all := map[string]string{
		velerov1.AnnotationCSISnapshotHandle: ptr.Deref(vsc.Status.SnapshotHandle, ""), velerov1.AnnotationCSIDriverName: vsc.Spec.Driver,
		velerov1.AnnotationCSIDeletionPolicy: string(vsc.Spec.DeletionPolicy),
	}
	if size := vsc.Status.RestoreSize; size != nil {
		all[velerov1.AnnotationCSISnapshotRestoreSize] = apiresource.NewQuantity(*size, apiresource.BinarySI).String()
	}
	if group := vsc.Status.VolumeGroupSnapshotHandle; group != nil {
		all[velerov1.AnnotationCSIGroupSnapshotHandle] = *group
	}
	return all
}

// claimWithSnapshot is the claim as it is stored, with its snapshot as an additional item.
func (s *Snapshotter) claimWithSnapshot(o *action.Object, vs *snapshotv1.VolumeSnapshot, vsc *snapshotv1.VolumeSnapshotContent) (action.BackupResult, error) {
	u, err := o.Copy()
	if err != nil {
		return action.BackupResult{}, err
	}
	s.nameSnapshot(u, vs.Name, map[string]string{velerov1.AnnotationMustIncludeAdditional: "true"})
	if err := enlargeRequest(u, ptr.Deref(vsc.Status.RestoreSize, 0)); err != nil {
		return action.BackupResult{}, err
	}
	return action.BackupResult{
		Object:     action.FromContent(u.Object),
		Additional: []action.Item{{GroupResource: Snapshots, Namespace: vs.Namespace, Name: vs.Name}},
	}, nil
}

// nameSnapshot has a stored claim name its snapshot, by label and annotation, and adds further annotations.
func (s *Snapshotter) nameSnapshot(u *unstructured.Unstructured, snapshot string, further map[string]string) {
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[velerov1.LabelVolumeSnapshotName], labels[velerov1.LabelBackupName] = snapshot, velerov1.LabelValue(s.Backup.Name)
	annotations[velerov1.LabelVolumeSnapshotName] = snapshot
	delete(annotations, velerov1.AnnotationDataUploadName) // of another backup
	maps.Copy(annotations, further)
	u.SetLabels(labels)
	u.SetAnnotations(annotations)
}

// enlargeRequest raises the storage request of the stored claim to what a volume of the snapshot needs.
func enlargeRequest(u *unstructured.Unstructured, size int64) error {
	text, found, err := unstructured.NestedString(u.Object, "spec", "resources", "requests", "storage")
	if err != nil || size <= 0 {
		return err
	}
	if found {
		asked, err := apiresource.ParseQuantity(strings.TrimSpace(text))
		if err == nil && asked.CmpInt64(size) >= 0 {
			return nil
		}
	}
	return unstructured.SetNestedField(u.Object, apiresource.NewQuantity(size, apiresource.BinarySI).String(), "spec", "resources", "requests", "storage")
}

// claimWithoutSnapshot is a claim without a snapshot, as it is stored.
func claimWithoutSnapshot(o *action.Object, c *claim) (action.BackupResult, error) {
	_, marked := c.Metadata.Annotations[velerov1.LabelVolumeSnapshotName]
	if _, moved := c.Metadata.Annotations[velerov1.AnnotationDataUploadName]; !marked && !moved {
		return action.BackupResult{Object: o}, nil
	}
	u, err := o.Copy()
	if err != nil {
		return action.BackupResult{}, err
	}
	for _, key := range []string{velerov1.LabelVolumeSnapshotName, velerov1.AnnotationDataUploadName} {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations", key)
	}
	return action.BackupResult{Object: action.FromContent(u.Object)}, nil
}
