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
	Claim          string      `json:"pvcName,omitempty"`
	ClaimNamespace string      `json:"pvcNamespace,omitempty"`
	Name           string      `json:"pvName,omitempty"`
	Method         string      `json:"restoreMethod,omitempty"`
	DataMoved      bool        `json:"snapshotDataMoved"`
	CSI            *csiInfo    `json:"csiSnapshotInfo,omitempty"`
	Movement       *moveInfo   `json:"snapshotDataMovementInfo,omitempty"`
	Native         *nativeInfo `json:"nativeSnapshotInfo,omitempty"`
	Pod            *podInfo    `json:"pvrInfo,omitempty"`
}

type csiInfo struct {
	Handle  string `json:"snapshotHandle"`
	Size    int64  `json:"size"`
	Driver  string `json:"driver"`
	Content string `json:"vscName"`
}

// moveInfo has the keys of Velero's files.
type moveInfo struct {
	DataMover string `json:"dataMover"`
	Uploader  string `json:"uploaderType"`
	Handle    string `json:"snapshotHandle"`
	Operation string `json:"operationID"`
	Size      int64  `json:"size"`
}

// nativeInfo has the keys of Velero's files, Phase too.
type nativeInfo struct {
	Handle string `json:"snapshotHandle"`
	Type   string `json:"volumeType"`
	Zone   string `json:"volumeAZ"`
	IOPS   string `json:"iops"`
	Phase  string `json:"Phase"`
}

// fillsClaim reports that the volume is one of a claim which is created, to be filled.
func (v *Volume) fillsClaim() bool { return v.CSI != nil || v.Download != nil }

// Filled is a claim that was created, to be filled from a CSI snapshot, moved or not.
type Filled struct {
	Node   int32
	Volume Volume
}

// Filled returns the claims that were created, to be filled from CSI snapshots, and that are not
// settled, by their nodes.
func (r *Recorder) Filled() []Filled {
	return r.filledBy(func(v *Volume) bool { return v.CSI != nil && !v.CSI.Settled })
}

// Downloads returns the claims that were created, to be filled from moved snapshots, and whose volumes are not
// known yet, by their nodes.
func (r *Recorder) Downloads() []Filled {
	return r.filledBy(func(v *Volume) bool { return v.Download != nil && v.Name == "" })
}

func (r *Recorder) filledBy(is func(*Volume) bool) (all []Filled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(r.volumes)) {
		if v := r.volumes[node]; is(v) && codes[r.tally.actions[node]] == apply.Created {
			all = append(all, Filled{node, *v})
		}
	}
	return all
}

// Settle records that nothing waits any more for a claim that is filled from a CSI snapshot: it is
// bound to the volume, or to none of which anything is known. A problem is an error of the restore.
func (r *Recorder) Settle(f Filled, volume, message, problem string) {
	e := r.Begin(f.Node)
	if message != "" {
		e.Info(message)
	}
	if problem != "" {
		e.Error(problem)
	}
	v, snapshot := f.Volume, *f.Volume.CSI
	snapshot.Settled = true
	v.Name, v.CSI = volume, &snapshot
	e.record.Volume = &v
	e.Commit()
}

// WriteVolumeInfo writes <restore>-volumeinfo.json.gz's document: the volumes that were made of
// snapshots and whose objects were created, named as in the cluster, and the volumes of Pods.
func (f Files) WriteVolumeInfo(w io.Writer, filled []FilledVolume) error {
	r := f.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	infos := []volumeInfo{}
	for _, node := range slices.Sorted(maps.Keys(r.volumes)) {
		if codes[r.tally.actions[node]] != apply.Created {
			continue
		}
		v := r.volumes[node]
		if s := v.CSI; s != nil {
			infos = append(infos, volumeInfo{
				Claim: v.Claim, ClaimNamespace: v.ClaimNamespace, Name: v.Name, Method: "CSISnapshot",
				CSI: &csiInfo{Handle: s.Handle, Size: s.Size, Driver: s.Driver, Content: s.Object},
			})
			continue
		}
		if d := v.Download; d != nil {
			infos = append(infos, volumeInfo{
				Claim: v.Claim, ClaimNamespace: v.ClaimNamespace, Name: v.Name, Method: "CSISnapshot", DataMoved: true,
				Movement: &moveInfo{DataMover: cmp.Or(d.DataMover, "velero"), Uploader: "kopia", Handle: d.Snapshot, Operation: d.Operation, Size: d.Size},
			})
			continue
		}
		infos = append(infos, volumeInfo{
			Claim: v.Claim, ClaimNamespace: v.ClaimNamespace, Name: cmp.Or(v.Name, r.plan.Name(node)), Method: "NativeSnapshot",
			Native: &nativeInfo{Handle: v.Snapshot, Type: v.Type, Zone: v.Zone, IOPS: strconv.FormatInt(v.IOPS, 10), Phase: "Completed"},
		})
	}
	for i := range filled {
		infos = append(infos, describeFilled(&filled[i]))
	}
	return json.NewEncoder(w).Encode(infos)
}
