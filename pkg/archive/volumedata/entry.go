package volumedata

import (
	"cmp"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
)

const (
	// resultFailed is the result of a volume whose data could not be taken (Velero 1.13 and later).
	resultFailed = "failed"
	// phaseFailed is that of an operation (Velero 1.11 and later).
	phaseFailed = "Failed"

	uploaderKopia velerov1.UploaderType = "kopia" // of all DataUploads

	tagClaimUID    = "pvc-uid" // of a PodVolumeBackup
	groupVelero    = "velero.io"
	groupSnapshots = "snapshot.storage.k8s.io"
)

// volumeInfo is the part of an entry of -volumeinfo.json.gz that matters here.
type volumeInfo struct {
	Claim     string  `json:"pvcName"`
	Namespace string  `json:"pvcNamespace"`
	Volume    string  `json:"pvName"`
	Method    string  `json:"backupMethod"`
	Moved     bool    `json:"snapshotDataMoved"`
	Result    string  `json:"result"`
	CSI       *handle `json:"csiSnapshotInfo"`
	Movement  *struct {
		handle
		Uploader velerov1.UploaderType `json:"uploaderType"`
		Mover    string                `json:"dataMover"`
	} `json:"snapshotDataMovementInfo"`
	Pod *struct {
		handle
		Uploader  velerov1.UploaderType `json:"uploaderType"`
		Volume    string                `json:"volumeName"`
		Name      string                `json:"podName"`
		Namespace string                `json:"podNamespace"`
	} `json:"pvbInfo"`
}

type handle struct {
	Handle string `json:"snapshotHandle"`
}

func (h *handle) isKnown() bool { return h != nil && h.Handle != "" }

func fromVolumeInfo(i *volumeInfo) (d Data, is bool) {
	d = Data{Namespace: i.Namespace, Claim: i.Claim, Volume: i.Volume}
	held := false
	switch Method(i.Method) {
	case PodVolumeBackup:
		d.Method = PodVolumeBackup
		if i.Pod != nil {
			if held = i.Pod.isKnown(); held {
				d.Files = &FileSnapshot{ID: i.Pod.Handle, Uploader: i.Pod.Uploader}
			}
			d.Pod, d.PodVolume, d.Namespace = i.Pod.Name, i.Pod.Volume, cmp.Or(d.Namespace, i.Pod.Namespace)
		}
	case CSISnapshot:
		d.Method, held = CSISnapshot, i.CSI.isKnown()
		if i.Moved {
			d.Method, held = DataUpload, i.Movement != nil && i.Movement.isKnown()
			if held && isBuiltIn(i.Movement.Mover) {
				d.Files = &FileSnapshot{ID: i.Movement.Handle, Uploader: i.Movement.Uploader}
			}
		}
	default:
		return d, false
	}
	d.Stored = held || i.Result != resultFailed
	return d, true
}

func fromPodVolumeBackup(p *velerov1.PodVolumeBackup) (Data, bool) { return OfPodVolumeBackup(p), true }

// OfPodVolumeBackup returns the data that a PodVolumeBackup is about.
func OfPodVolumeBackup(p *velerov1.PodVolumeBackup) Data {
	return Data{
		Method: PodVolumeBackup, Namespace: p.Spec.Pod.Namespace, Claim: p.Annotations[velerov1.AnnotationPVCName],
		Pod: p.Spec.Pod.Name, PodVolume: p.Spec.Volume, Stored: p.Status.SnapshotID != "",
		Files: &FileSnapshot{
			ID: p.Status.SnapshotID, Phase: p.Status.Phase, Uploader: p.Spec.UploaderType, Size: p.Status.Progress.TotalBytes,
			ClaimUID: cmp.Or(p.Labels[velerov1.LabelClaimUID], p.Spec.Tags[tagClaimUID]),
		},
	}
}

// isBuiltIn reports whether a data mover is the one that stores in repositories of kopia.
func isBuiltIn(mover string) bool { return mover == "" || mover == "velero" }

// OfDataUpload returns the data that a DataUpload is about.
func OfDataUpload(u *v2alpha1.DataUpload) Data {
	d := Data{Method: DataUpload, Namespace: u.Spec.SourceNamespace, Claim: u.Spec.SourcePVC, Stored: u.Status.SnapshotID != ""}
	if isBuiltIn(u.Spec.DataMover) {
		d.Files = &FileSnapshot{ID: u.Status.SnapshotID, Phase: velerov1.PodVolumePhase(u.Status.Phase), Uploader: uploaderKopia, Size: u.Status.Progress.TotalBytes}
	}
	return d
}

// resource names an item; the keys are capitalised in the file.
type resource struct{ Group, Resource, Namespace, Name string }

// operation is the part of an entry of -itemoperations.json.gz that matters here.
type operation struct {
	Spec struct {
		Item  resource   `json:"resourceIdentifier"`
		After []resource `json:"postOperationItems"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// mayHaveStoredData reports that the operation may have stored data.
func (o *operation) mayHaveStoredData() bool { return o.Status.Phase != phaseFailed }

// fromOperation finds DataUploads, and snapshots, whose claims other files name.
func fromOperation(o *operation) (d Data, is bool) {
	for _, r := range o.Spec.After {
		if r.Group != groupVelero || r.Resource != "datauploads" {
			continue
		}
		return Data{Method: DataUpload, Namespace: o.Spec.Item.Namespace, Claim: o.Spec.Item.Name, Stored: o.mayHaveStoredData()}, true
	}
	if o.Spec.Item.Group == groupSnapshots && o.Spec.Item.Resource == "volumesnapshots" {
		return Data{Method: CSISnapshot, Namespace: o.Spec.Item.Namespace, Snapshot: o.Spec.Item.Name, Stored: o.mayHaveStoredData()}, true
	}
	return d, false
}

// snapshot is the part of a VolumeSnapshot that matters here.
type snapshot struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Source struct {
			Claim string `json:"persistentVolumeClaimName"`
		} `json:"source"`
	} `json:"spec"`
}

func fromCSISnapshot(s *snapshot) (Data, bool) {
	return Data{Method: CSISnapshot, Namespace: s.Metadata.Namespace, Claim: s.Spec.Source.Claim, Snapshot: s.Metadata.Name, Stored: true}, true
}
