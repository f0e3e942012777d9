package checkpoint

import (
	"encoding/json"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

// PodVolumeInfo is what there is to know of a file-system backup. Phase is capitalised in Velero's
// files.
type PodVolumeInfo struct {
	Handle       string `json:"snapshotHandle"`
	Size         int64  `json:"size"`
	Incremental  int64  `json:"incrementalSize,omitempty"`
	Uploader     string `json:"uploaderType"`
	Volume       string `json:"volumeName"`
	PodName      string `json:"podName"`
	PodNamespace string `json:"podNamespace"`
	Node         string `json:"nodeName"`
	Phase        string `json:"Phase"`
}

// VolumeOfRequest returns the entry of the volume of a PodVolumeBackup, whose claim may be none.
func VolumeOfRequest(pvb *velerov1.PodVolumeBackup) VolumeInfo {
	spec, status := &pvb.Spec, &pvb.Status
	i := VolumeInfo{
		Method: MethodPodVolume, Result: Failed, StartTimestamp: status.StartTimestamp, CompletionTimestamp: status.CompletionTimestamp,
		PodVolume: &PodVolumeInfo{
			Handle: status.SnapshotID, Size: status.Progress.TotalBytes, Incremental: status.IncrementalBytes, Uploader: string(spec.UploaderType),
			Volume: spec.Volume, PodName: spec.Pod.Name, PodNamespace: spec.Pod.Namespace, Node: spec.Node, Phase: string(status.Phase),
		},
	}
	if status.Phase == velerov1.PodVolumePhaseCompleted && status.SnapshotID != "" {
		i.Result = Succeeded
	}
	claim := pvb.Annotations[velerov1.AnnotationPVCName]
	if claim == "" {
		return i
	}
	i.PVCName, i.PVCNamespace = claim, spec.Pod.Namespace
	var volume podvolume.VolumeInfo
	if json.Unmarshal([]byte(pvb.Annotations[podvolume.AnnotationVolume]), &volume) == nil && volume.Name != "" {
		i.PVName, i.Volume = volume.Name, &PersistentVolume{ReclaimPolicy: volume.ReclaimPolicy, Labels: volume.Labels}
	}
	return i
}
