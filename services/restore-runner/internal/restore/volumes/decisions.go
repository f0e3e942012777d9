package volumes

import (
	"context"
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// Info is the part of an entry of <backup>-volumeinfo.json.gz that decides.
type Info struct {
	PVName       string `json:"pvName"`
	Namespace    string `json:"pvcNamespace"`
	Claim        string `json:"pvcName"`
	BackupMethod string `json:"backupMethod"`
	DataMoved    bool   `json:"snapshotDataMoved"`
	PVInfo       *struct {
		ReclaimPolicy string            `json:"reclaimPolicy"`
		Labels        map[string]string `json:"labels"`
	} `json:"pvInfo"`
}

// Methods of Info.
const (
	methodNative = "NativeSnapshot"
	methodPod    = "PodVolumeBackup"
	methodCSI    = "CSISnapshot"
)

// Native reports that the volume has, or should have, a native snapshot.
func (i Info) Native() bool { return i.BackupMethod == methodNative }

// Reader reads the body of an item.
type Reader func(ctx context.Context, item manifest.Item) ([]byte, error)

// Decisions holds what was decided. It does not change and is safe for concurrent use.
type Decisions struct {
	wanted  bool
	volumes map[string]restoreDecision
	lost    lostData
	files   fileBackups
}

type restoreDecision struct {
	reprovision       bool
	snapshot          *nativesnapshot.Snapshot
	problem           string
	claimSpace, claim string
	recorded          bool
	policy            string // the reclaim policy in the volume information
	labels            map[string]string
}

// storedVolume is the part of a PersistentVolume that decides.
type storedVolume struct {
	Spec struct {
		ReclaimPolicy string `json:"persistentVolumeReclaimPolicy"`
		ClaimRef      *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"claimRef"`
	} `json:"spec"`
}

// Taken is how the data of the volumes was backed up, from the files of the backup.
type Taken struct {
	// Infos are the volume information, nil for backups without it.
	Infos []Info
	// Snapshots are the native snapshots, which do not matter where volumes are not to be restored.
	Snapshots []nativesnapshot.Snapshot
	// Elsewhere is the data that is neither restored with a volume nor in a native snapshot.
	Elsewhere []volumedata.Data
	// Snapshotted are the claims that name a VolumeSnapshot which is in the backup.
	Snapshotted []types.NamespacedName
	// CSI reports that claims are filled from their CSI snapshots.
	CSI bool
	// Items lists the items of the backup. Nil lists none.
	Items func(ctx context.Context) iter.Seq2[manifest.Item, error]
}

// Decide reads the volumes of a backup one after the other. restorePVs is the restore's setting:
// data asked for and not restorable by this version becomes a Problem of the volume, the claim or
// the pod. A volume whose body cannot be read is decided by the files alone; restoring it will
// report the reason.
func Decide(ctx context.Context, items []manifest.Item, read Reader, from Taken, restorePVs bool) (*Decisions, error) {
	d := &Decisions{wanted: restorePVs, volumes: map[string]restoreDecision{}, files: newFileBackups()}
	d.lost = newLostData(&from, restorePVs, &d.files)
	if err := d.files.findMounts(from.itemsOf(ctx)); err != nil {
		return nil, err
	}
	taken := snapshotsByVolume(from.Snapshots)
	for name := range taken { // those of a backup without volume information
		d.volumes[name] = decideNative(taken[name], restorePVs)
	}
	for _, info := range from.Infos {
		if info.PVName == "" {
			continue
		}
		policy := ""
		if info.PVInfo != nil {
			policy = info.PVInfo.ReclaimPolicy
		}
		if info.BackupMethod == methodNative {
			d.volumes[info.PVName] = decideNative(taken[info.PVName], restorePVs)
			continue
		}
		now := d.decideByInfo(&from, &info, policy, restorePVs)
		if info.PVInfo != nil {
			now.policy, now.labels = policy, info.PVInfo.Labels
		}
		d.volumes[info.PVName] = now
	}
	for _, item := range items {
		body, err := read(ctx, item)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read PersistentVolume %q: %w", item.Name, context.Cause(ctx))
		}
		var pv storedVolume
		if err != nil || jsonlimit.Unmarshal(body, &pv, jsonlimit.Object) != nil {
			continue
		}
		now, known := d.volumes[item.Name]
		if !known || now.followsPolicy() {
			now.reprovision = pv.Spec.ReclaimPolicy == "Delete"
		}
		if claim := pv.Spec.ClaimRef; claim != nil {
			now.claimSpace, now.claim = claim.Namespace, claim.Name
			d.lost.reconcileVolume(&now, known, &d.files)
		}
		d.volumes[item.Name] = now
	}
	return d, nil
}

// decideByInfo decides by what the backup did with the volume.
func (d *Decisions) decideByInfo(from *Taken, info *Info, policy string, restorePVs bool) restoreDecision {
	method := info.BackupMethod
	switch {
	case method == methodCSI && (!restorePVs || d.Filled(info.Namespace, info.Claim)):
		return restoreDecision{recorded: true, reprovision: true}
	case method == methodPod:
		claim := objectName{info.Namespace, info.Claim}
		problem := d.lost.claims[claim]
		if problem == "" && d.files.claims[claim] == nil {
			problem = fileProblem(&volumedata.Data{}) + newVolume
		}
		return restoreDecision{recorded: true, reprovision: true, problem: problem}
	case method == methodCSI:
		return restoreDecision{recorded: true, reprovision: true, problem: from.notRestored()}
	}
	return restoreDecision{reprovision: policy == "Delete"}
}

// decideNative decides about a volume that has, or should have, a native snapshot; nil where the backup
// lists none.
func decideNative(s *nativesnapshot.Snapshot, restorePVs bool) restoreDecision {
	switch {
	case !restorePVs:
		return restoreDecision{recorded: true}
	case s == nil:
		return restoreDecision{recorded: true, reprovision: true,
			problem: "the backup has no complete snapshot of it: the claim gets a new, empty volume"}
	}
	return restoreDecision{recorded: true, snapshot: s}
}

// snapshotsByVolume returns the complete snapshots by volume.
func snapshotsByVolume(snapshots []nativesnapshot.Snapshot) map[string]*nativesnapshot.Snapshot {
	found := map[string]*nativesnapshot.Snapshot{}
	for i := range snapshots {
		s := &snapshots[i]
		if s.Status.Phase == nativesnapshot.PhaseCompleted && s.Status.ProviderSnapshotID != "" && s.Spec.PersistentVolumeName != "" {
			found[s.Spec.PersistentVolumeName] = s
		}
	}
	return found
}

// followsPolicy reports that the backup took no data, so that the reclaim policy decides.
func (d restoreDecision) followsPolicy() bool { return !d.recorded }

// Wanted reports that the restore is to have the data of volumes.
func (d *Decisions) Wanted() bool { return d.wanted }

// Reprovision reports that the volume does not come back.
func (d *Decisions) Reprovision(volume string) bool { return d.volumes[volume].reprovision }

// Snapshot returns the native snapshot that a volume is to be made of; false when it is restored as
// it is, or not at all.
func (d *Decisions) Snapshot(volume string) (nativesnapshot.Snapshot, bool) {
	s := d.volumes[volume].snapshot
	if s == nil {
		return nativesnapshot.Snapshot{}, false
	}
	return *s, true
}

// Original returns reclaim policy and labels of a volume as the volume information has them; empty
// where it has none.
func (d *Decisions) Original(volume string) (policy string, labels map[string]string) {
	v := d.volumes[volume]
	return v.policy, v.labels
}

// Problem returns why the data of a volume is not restored although the backup has it; "" when
// nothing is lost.
func (d *Decisions) Problem(volume string) string { return d.volumes[volume].problem }

// Claim returns namespace and name, as in the backup, of the claim a volume is bound to; empty when
// it is not bound.
func (d *Decisions) Claim(volume string) (namespace, name string) {
	v := d.volumes[volume]
	return v.claimSpace, v.claim
}
