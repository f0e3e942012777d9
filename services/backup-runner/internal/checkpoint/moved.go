package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// MovementInfo is what there is to know of a snapshot whose data is moved. Phase is capitalised in Velero's files.
type MovementInfo struct {
	DataMover   string                 `json:"dataMover"`
	Uploader    string                 `json:"uploaderType"`
	Snapshot    string                 `json:"retainedSnapshot"`
	Handle      string                 `json:"snapshotHandle"`
	OperationID string                 `json:"operationID"`
	Size        int64                  `json:"size"`
	Incremental int64                  `json:"incrementalSize,omitempty"`
	Phase       v2alpha1.DataMovePhase `json:"Phase"`
}

// movedAway is Velero's word for the operation and the content of a snapshot that is moved.
const movedAway = "unknown"

// VolumeOfMoved returns the entry of the volume of a claim, given as it is stored, the data of whose snapshot is moved.
// What became of it is known once its operation has ended.
func VolumeOfMoved(claim []byte, backup types.UID) (VolumeInfo, error) {
	var pvc struct {
		Metadata struct {
			UID types.UID `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(claim, &pvc); err != nil {
		return VolumeInfo{}, fmt.Errorf("read the claim: %w", err)
	}
	i, err := SkippedVolume(claim, false)
	i.Skipped, i.SkippedReason, i.Method, i.DataMoved, i.Result = false, "", MethodCSI, true, Failed
	i.Movement = &MovementInfo{DataMover: "velero", Uploader: "kopia", OperationID: podvolume.UploadOperationID(backup, pvc.Metadata.UID)}
	return i, err
}

// ConcludeMovement writes how the movement of the volume's data ended. A DataUpload that was not final when its operation
// ended counts as failed, whatever became of it later: every holder of the backup writes the same.
func (i *VolumeInfo) ConcludeMovement(u *v2alpha1.DataUpload, end *operation.State) {
	i.Movement.Phase = "Failed"
	if u == nil {
		return
	}
	spec, status := &u.Spec, &u.Status
	var volume csisnapshot.Volume
	if json.Unmarshal([]byte(u.Annotations[csisnapshot.AnnotationVolume]), &volume) == nil && volume.Name != "" {
		i.PVName, i.Volume = volume.Name, &PersistentVolume{ReclaimPolicy: volume.ReclaimPolicy, Labels: volume.Labels}
	}
	i.Movement.DataMover = cmp.Or(spec.DataMover, i.Movement.DataMover)
	if s := spec.CSISnapshot; s != nil {
		i.Movement.Snapshot = s.VolumeSnapshot
		i.CSI = &CSIInfo{Handle: u.Annotations[velerov1.AnnotationCSISnapshotHandle], Driver: s.Driver, Content: movedAway, OperationID: movedAway}
	}
	if end.Phase != operation.Completed && (status.CompletionTimestamp == nil || status.CompletionTimestamp.After(end.EndTime)) {
		return
	}
	i.StartTimestamp, i.CompletionTimestamp = status.StartTimestamp, status.CompletionTimestamp
	i.Movement.Handle, i.Movement.Size, i.Movement.Incremental, i.Movement.Phase = status.SnapshotID, status.Progress.TotalBytes, status.IncrementalBytes, status.Phase
	if end.Phase == operation.Completed && status.Phase == "Completed" {
		i.Result = Succeeded
	}
}
