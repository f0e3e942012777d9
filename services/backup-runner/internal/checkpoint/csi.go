package checkpoint

import (
	"encoding/json"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
)

// VolumeOfCSI returns the entry of the volume of a CSI snapshot, given as the JSON that is stored. Whether
// it succeeded is known once its operation has ended.
func VolumeOfCSI(raw []byte) (VolumeInfo, error) {
	var vs snapshotv1.VolumeSnapshot
	if err := json.Unmarshal(raw, &vs); err != nil {
		return VolumeInfo{}, fmt.Errorf("read the VolumeSnapshot: %w", err)
	}
	var of csisnapshot.Volume
	if err := json.Unmarshal([]byte(vs.Annotations[csisnapshot.AnnotationVolume]), &of); err != nil {
		return VolumeInfo{}, fmt.Errorf("read annotation %s: %w", csisnapshot.AnnotationVolume, err)
	}
	i := VolumeInfo{
		PVCName: ptr.Deref(vs.Spec.Source.PersistentVolumeClaimName, ""), PVCNamespace: vs.Namespace, PVName: of.Name,
		Method: MethodCSI, LocalSnapshot: true,
		CSI: &CSIInfo{
			Handle: vs.Annotations[velerov1.AnnotationCSISnapshotHandle], Driver: vs.Annotations[velerov1.AnnotationCSIDriverName],
			Group: vs.Annotations[velerov1.AnnotationCSIGroupSnapshotHandle], OperationID: csisnapshot.OperationID(&vs),
		},
		Volume: &PersistentVolume{ReclaimPolicy: of.ReclaimPolicy, Labels: of.Labels},
	}
	if s := vs.Status; s != nil {
		i.StartTimestamp, i.CSI.ReadyToUse, i.CSI.Content = s.CreationTime, s.ReadyToUse, ptr.Deref(s.BoundVolumeSnapshotContentName, "")
		if s.RestoreSize != nil {
			i.CSI.Size = s.RestoreSize.Value()
		}
	}
	return i, nil
}
