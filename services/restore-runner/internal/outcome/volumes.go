package outcome

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// volumeInfo is an entry of <restore>-volumeinfo.json.gz (Velero 1.18).
type volumeInfo struct {
	Claim          string     `json:"pvcName,omitempty"`
	ClaimNamespace string     `json:"pvcNamespace,omitempty"`
	Name           string     `json:"pvName,omitempty"`
	Method         string     `json:"restoreMethod,omitempty"`
	DataMoved      bool       `json:"snapshotDataMoved"`
	Native         nativeInfo `json:"nativeSnapshotInfo"`
}

// nativeInfo has the keys of Velero's files, Phase too.
type nativeInfo struct {
	Handle string `json:"snapshotHandle"`
	Type   string `json:"volumeType"`
	Zone   string `json:"volumeAZ"`
	IOPS   string `json:"iops"`
	Phase  string `json:"Phase"`
}

// WriteVolumeInfo writes <restore>-volumeinfo.json.gz's document: the volumes that were made of
// snapshots and whose objects were created, named as in the cluster.
func (f Files) WriteVolumeInfo(w io.Writer) error {
	r := f.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	infos := []volumeInfo{}
	for _, node := range slices.Sorted(maps.Keys(r.volumes)) {
		if codes[r.tally.actions[node]] != apply.Created {
			continue
		}
		v := r.volumes[node]
		infos = append(infos, volumeInfo{
			Claim: v.Claim, ClaimNamespace: v.ClaimNamespace, Name: cmp.Or(v.Name, r.plan.Node(node).Name), Method: "NativeSnapshot",
			Native: nativeInfo{Handle: v.Snapshot, Type: v.Type, Zone: v.Zone, IOPS: strconv.FormatInt(v.IOPS, 10), Phase: "Completed"},
		})
	}
	return json.NewEncoder(w).Encode(infos)
}
