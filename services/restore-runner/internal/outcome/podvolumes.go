package outcome

import velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"

// FilledVolume is a volume of a Pod that a PodVolumeRestore was made for. Claim and Volume are the names of
// its claim and PersistentVolume; empty where it has none.
type FilledVolume struct {
	Request       *velerov1.PodVolumeRestore
	Claim, Volume string
}

// podInfo has the keys of Velero's files, Phase too.
type podInfo struct {
	Handle    string `json:"snapshotHandle"`
	Size      int64  `json:"size"`
	Uploader  string `json:"uploaderType"`
	Volume    string `json:"volumeName"`
	Pod       string `json:"podName"`
	Namespace string `json:"podNamespace"`
	Node      string `json:"nodeName"`
	Phase     string `json:"Phase"`
}

// describeFilled returns the entry of a volume.
func describeFilled(f *FilledVolume) volumeInfo {
	spec, status := &f.Request.Spec, &f.Request.Status
	info := volumeInfo{Claim: f.Claim, Name: f.Volume, Method: "PodVolumeRestore", Pod: &podInfo{
		Handle: spec.SnapshotID, Size: status.Progress.TotalBytes, Uploader: string(spec.UploaderType), Volume: spec.Volume,
		Pod: spec.Pod.Name, Namespace: spec.Pod.Namespace, Node: status.Node, Phase: string(status.Phase),
	}}
	if f.Claim != "" {
		info.ClaimNamespace = spec.Pod.Namespace
	}
	return info
}
