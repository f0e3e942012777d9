package csisnapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

// Uploads is the resource of DataUploads.
var Uploads = schema.GroupResource{Group: v2alpha1.GroupVersion.Group, Resource: "datauploads"}

// Movement has the data of snapshots be moved to the location of the backup.
type Movement struct {
	// Namespace is the server's, where the DataUploads are.
	Namespace string
	// FindProblem returns why no DataUpload is served; empty where they are.
	FindProblem func(ctx context.Context) (string, error)
}

// moveClaim takes a snapshot and requests its movement. A repetition of the call finds the DataUpload, whose snapshot
// may be gone by then.
func (s *Snapshotter) moveClaim(ctx context.Context, o *action.Object, of *snapshotSubject) (r action.BackupResult, err error) {
	upload := s.newUpload(of)
	found, err := s.getObject(ctx, upload.Namespace, upload.Name, upload)
	if err != nil {
		return r, err
	}
	if !found {
		if err := s.checkMovable(ctx, of); err != nil {
			return r, err
		}
		h, err := s.holdVolume(ctx, of)
		if err != nil {
			return r, err
		}
		vs, vsc, err := s.takeSnapshot(ctx, of, h)
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		if err != nil {
			return r, err
		}
		describeSnapshot(upload, vs, vsc)
		if err := s.createUpload(ctx, upload); err != nil {
			return r, err
		}
	}
	r.OperationID = upload.Labels[velerov1.LabelAsyncOperation]
	r.PostOperation = []action.Item{{GroupResource: Uploads, Namespace: upload.Namespace, Name: upload.Name}}
	r.Object, err = s.claimWithUpload(o, upload)
	return r, err
}

// needsSnapshot reports whether a snapshot is to be taken of a claim, as far as its movement decides that.
func (s *Snapshotter) needsSnapshot(ctx context.Context, of *snapshotSubject) bool {
	if s.Movement == nil {
		return true
	}
	upload := s.newUpload(of)
	found, err := s.getObject(ctx, upload.Namespace, upload.Name, upload)
	return err == nil && !found && s.checkMovable(ctx, of) == nil
}

// checkMovable returns why the data of a claim cannot be moved.
func (s *Snapshotter) checkMovable(ctx context.Context, of *snapshotSubject) error {
	if of.volume.Spec.StorageClassName == "" {
		return fmt.Errorf("PersistentVolume %s has no StorageClass, of which the data mover makes a volume of the snapshot; back the claim up by file-system backup", of.volume.Name)
	}
	problem, err := s.Movement.FindProblem(ctx)
	if err == nil && problem != "" {
		err = errors.New(problem)
	}
	return err
}

// newUpload is the DataUpload of a claim, but for its snapshot (Velero 1.18).
func (s *Snapshotter) newUpload(of *snapshotSubject) *v2alpha1.DataUpload {
	b, uid := s.Backup, of.claim.Metadata.UID
	operation := podvolume.UploadOperationID(b.UID, uid)
	labels := s.backupLabels()
	labels[velerov1.LabelPVCUID], labels[velerov1.LabelAsyncOperation] = string(uid), operation
	upload := &v2alpha1.DataUpload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Movement.Namespace, Name: podvolume.RequestName(b.Name, operation), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: velerov1.GroupVersion.String(), Kind: "Backup", Name: b.Name, UID: b.UID, Controller: ptr.To(true)}},
		},
		Spec: v2alpha1.DataUploadSpec{
			SnapshotType: "CSI", SourcePVC: of.claim.Metadata.Name, SourceNamespace: of.claim.Metadata.Namespace, DataMover: b.Spec.DataMover,
			BackupStorageLocation: b.Spec.StorageLocation, OperationTimeout: metav1.Duration{Duration: snapshotTimeout(b)},
			CSISnapshot: &v2alpha1.CSISnapshotSpec{StorageClass: of.volume.Spec.StorageClassName, SnapshotClass: of.class, Driver: of.volume.Spec.CSI.Driver},
		},
	}
	if c := b.Spec.UploaderConfig; c != nil && c.ParallelFilesUpload > 0 {
		upload.Spec.DataMoverConfig = map[string]string{"ParallelFilesUpload": strconv.Itoa(c.ParallelFilesUpload)}
	}
	return upload
}

// describeSnapshot has a DataUpload name its snapshot, and say of it what the backup records.
func describeSnapshot(upload *v2alpha1.DataUpload, vs *snapshotv1.VolumeSnapshot, vsc *snapshotv1.VolumeSnapshotContent) {
	upload.Spec.CSISnapshot.VolumeSnapshot = vs.Name
	upload.Annotations = snapshotAnnotations(vsc)
	maps.DeleteFunc(upload.Annotations, func(key, _ string) bool { return key == velerov1.AnnotationCSIDeletionPolicy })
	upload.Annotations[AnnotationVolume] = vs.Annotations[AnnotationVolume]
}

// createUpload creates a DataUpload, and removes its snapshot if the API server refuses it.
func (s *Snapshotter) createUpload(ctx context.Context, upload *v2alpha1.DataUpload) error {
	err := s.retryCall(ctx, "create DataUpload "+upload.Name, func() error { return s.Client.Create(ctx, upload) })
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, apierrors.IsAlreadyExists(err): // the call before got no answer
		return nil
	}
	s.discardUnnamed(ctx, client.ObjectKey{Namespace: upload.Spec.SourceNamespace, Name: upload.Spec.CSISnapshot.VolumeSnapshot})
	return err
}

// claimWithUpload is the claim as it is stored, with its DataUpload.
func (s *Snapshotter) claimWithUpload(o *action.Object, upload *v2alpha1.DataUpload) (*action.Object, error) {
	u, err := o.Copy()
	if err != nil {
		return nil, err
	}
	s.nameSnapshot(u, upload.Spec.CSISnapshot.VolumeSnapshot, map[string]string{velerov1.AnnotationDataUploadName: upload.Namespace + "/" + upload.Name})
	if size, err := apiresource.ParseQuantity(upload.Annotations[velerov1.AnnotationCSISnapshotRestoreSize]); err == nil {
		if err := enlargeRequest(u, size.Value()); err != nil {
			return nil, err
		}
	}
	return action.FromContent(u.Object), nil
}
