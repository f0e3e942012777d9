// Package volume tells what became of the data of each volume: the entries of
// <backup>-volumeinfo.json.gz (Velero 1.18 layout).
package volume

import (
	"encoding/json"
	"fmt"
)

// Info is one entry. Only the fields Holdfast sets are here; the names are
// Velero's.
type Info struct {
	PVCName       string `json:"pvcName,omitempty"`
	PVCNamespace  string `json:"pvcNamespace,omitempty"`
	PVName        string `json:"pvName,omitempty"`
	DataMoved     bool   `json:"snapshotDataMoved"`
	LocalSnapshot bool   `json:"preserveLocalSnapshot"`
	Skipped       bool   `json:"skipped"`
	SkippedReason string `json:"skippedReason,omitempty"`
}

// Reasons why the data of a volume was not taken.
const (
	ReasonByChoice = "snapshotVolumes is false: the backup was asked not to take volume data"
	ReasonNoTaker  = "no way to take the data of this volume is available: only the objects were backed up"
	ReasonUnbound  = "the claim is not bound to a volume, so there is no data to take"
)

// Skipped returns the entry of a claim, given as JSON, whose data is not taken.
// byChoice is true when the backup's spec asked for that.
func Skipped(claim []byte, byChoice bool) (Info, error) {
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
		return Info{}, fmt.Errorf("read the claim: %w", err)
	}
	info := Info{
		PVCName: pvc.Metadata.Name, PVCNamespace: pvc.Metadata.Namespace, PVName: pvc.Spec.VolumeName,
		Skipped: true, SkippedReason: ReasonNoTaker,
	}
	switch {
	case byChoice:
		info.SkippedReason = ReasonByChoice
	case info.PVName == "":
		info.SkippedReason = ReasonUnbound
	}
	return info, nil
}
