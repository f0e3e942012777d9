package checkpoint

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
)

// VolumeInfo is one entry. Only the fields Holdfast sets are here; the names are Velero's.
type VolumeInfo struct {
	PVCName       string `json:"pvcName,omitempty"`
	PVCNamespace  string `json:"pvcNamespace,omitempty"`
	PVName        string `json:"pvName,omitempty"`
	Method        string `json:"backupMethod,omitempty"`
	DataMoved     bool   `json:"snapshotDataMoved"`
	LocalSnapshot bool   `json:"preserveLocalSnapshot"`
	Skipped       bool   `json:"skipped"`
	SkippedReason string `json:"skippedReason,omitempty"`

	StartTimestamp      *metav1.Time      `json:"startTimestamp,omitempty"`
	CompletionTimestamp *metav1.Time      `json:"completionTimestamp,omitempty"`
	Result              string            `json:"result,omitempty"`
	Native              *NativeInfo       `json:"nativeSnapshotInfo,omitempty"`
	CSI                 *CSIInfo          `json:"csiSnapshotInfo,omitempty"`
	Movement            *MovementInfo     `json:"snapshotDataMovementInfo,omitempty"`
	PodVolume           *PodVolumeInfo    `json:"pvbInfo,omitempty"`
	Volume              *PersistentVolume `json:"pvInfo,omitempty"`

	// Pending is true, in records of running backups alone, for a claim whose volume is decided on
	// later, and without a claim for a volume that is stored.
	Pending bool `json:"pending,omitempty"`
}

// The methods and the results are values of Info.
const (
	MethodNative    = "NativeSnapshot"
	MethodCSI       = "CSISnapshot"
	MethodPodVolume = "PodVolumeBackup"
	Succeeded       = "succeeded"
	Failed          = "failed"
)

// NativeInfo is what there is to know of a native snapshot. Phase is capitalised in Velero's files.
type NativeInfo struct {
	Handle string `json:"snapshotHandle"`
	Type   string `json:"volumeType"`
	AZ     string `json:"volumeAZ"`
	IOPS   string `json:"iops"`
	Phase  string `json:"Phase"`
}

// CSIInfo is what there is to know of a CSI snapshot. ReadyToUse is as of the end of the collection,
// and capitalised in Velero's files.
type CSIInfo struct {
	Handle      string `json:"snapshotHandle"`
	Size        int64  `json:"size"`
	Driver      string `json:"driver"`
	Content     string `json:"vscName"`
	OperationID string `json:"operationID,omitempty"`
	ReadyToUse  *bool  `json:"ReadyToUse,omitempty"`
	Group       string `json:"volumeGroupSnapshotHandle,omitempty"`
}

// PersistentVolume is what restores need of the PersistentVolume.
type PersistentVolume struct {
	ReclaimPolicy string            `json:"reclaimPolicy,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// SnapshotVolume returns the entry of a volume of which a native snapshot was taken, or should have been.
// claim may be nil; then the volume names its claim.
func SnapshotVolume(pv *corev1.PersistentVolume, claim *VolumeInfo, s *nativesnapshot.Snapshot) VolumeInfo {
	i := VolumeInfo{PVName: s.Spec.PersistentVolumeName, Method: MethodNative, Result: Failed,
		Native: &NativeInfo{Handle: s.Status.ProviderSnapshotID, Type: s.Spec.VolumeType, AZ: s.Spec.VolumeAZ, IOPS: "0", Phase: s.Status.Phase},
	}
	if s.Spec.VolumeIOPS != nil {
		i.Native.IOPS = strconv.FormatInt(*s.Spec.VolumeIOPS, 10)
	}
	if s.Status.Phase == nativesnapshot.PhaseCompleted {
		i.Result = Succeeded
	}
	if pv != nil {
		i.Volume = &PersistentVolume{ReclaimPolicy: string(pv.Spec.PersistentVolumeReclaimPolicy), Labels: pv.Labels}
		if ref := pv.Spec.ClaimRef; ref != nil {
			i.PVCNamespace, i.PVCName = ref.Namespace, ref.Name
		}
	}
	if claim != nil {
		i.PVCNamespace, i.PVCName = claim.PVCNamespace, claim.PVCName
	}
	return i
}

// Reasons why the data of a volume was not taken.
const (
	ReasonByChoice      = "snapshotVolumes is false: the backup was asked not to take volume data"
	ReasonNoSnapshotter = "no way to take the data of this volume is available: only the objects were backed up"
	ReasonUnbound       = "the claim is not bound to a volume, so there is no data to take"
)

// SkippedVolume returns the entry of a claim, given as JSON, whose data is not taken. byChoice is true
// when the backup's spec asked for that.
func SkippedVolume(claim []byte, byChoice bool) (VolumeInfo, error) {
	var pvc struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec struct {
			VolumeName string `json:"volumeName"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(claim, &pvc); err != nil {
		return VolumeInfo{}, fmt.Errorf("read the claim: %w", err)
	}
	info := VolumeInfo{
		PVCName: pvc.Metadata.Name, PVCNamespace: pvc.Metadata.Namespace, PVName: pvc.Spec.VolumeName,
		Skipped: true, SkippedReason: ReasonNoSnapshotter,
	}
	switch {
	case byChoice:
		info.SkippedReason = ReasonByChoice
	case info.PVName == "":
		info.SkippedReason = ReasonUnbound
	}
	return info, nil
}
