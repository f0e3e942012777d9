// Package volume decides what becomes of the PersistentVolumes of a backup: brought back as they
// were or with a volume made of a snapshot, or left out so that their claims get new ones. The
// rules are Velero 1.18's, from the backup's volume information and the volumes' own reclaim
// policy.
package volume

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// Info is the part of an entry of <backup>-volumeinfo.json.gz that decides.
type Info struct {
	PVName       string `json:"pvName"`
	BackupMethod string `json:"backupMethod"`
	PVInfo       *struct {
		ReclaimPolicy string `json:"reclaimPolicy"`
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
	volumes map[string]decision
	lost    lost
}

type decision struct {
	reprovision       bool
	snapshot          *nativesnapshot.Snapshot
	problem           string
	claimSpace, claim string
	recorded          bool
}

// stored is the part of a PersistentVolume that decides.
type stored struct {
	Spec struct {
		ReclaimPolicy string `json:"persistentVolumeReclaimPolicy"`
		ClaimRef      *struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"claimRef"`
	} `json:"spec"`
}

// Taken is what the files of a backup say of the data of its volumes.
type Taken struct {
	// Infos are the volume information, nil for backups without it.
	Infos []Info
	// Snapshots are the native snapshots, which do not matter where volumes are not to be restored.
	Snapshots []nativesnapshot.Snapshot
	// Elsewhere is the data that this version does not restore.
	Elsewhere []volumedata.Data
}

// Decide reads the volumes of a backup one after the other. restorePVs is the restore's setting:
// data asked for and not restorable by this version becomes a Problem of the volume, the claim or
// the pod. A volume whose body cannot be read is decided by the files alone; restoring it will
// report the reason.
func Decide(ctx context.Context, items []manifest.Item, read Reader, from Taken, restorePVs bool) (*Decisions, error) {
	d := &Decisions{volumes: map[string]decision{}, lost: newLost(from.Elsewhere, restorePVs)}
	taken := byVolume(from.Snapshots)
	for name := range taken { // those of a backup without volume information
		d.volumes[name] = native(taken[name], restorePVs)
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
			d.volumes[info.PVName] = native(taken[info.PVName], restorePVs)
			continue
		}
		d.volumes[info.PVName] = byInfo(info.BackupMethod, policy, restorePVs)
	}
	for _, item := range items {
		body, err := read(ctx, item)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read PersistentVolume %q: %w", item.Name, context.Cause(ctx))
		}
		var pv stored
		if err != nil || jsonlimit.Unmarshal(body, &pv, jsonlimit.Object) != nil {
			continue
		}
		now, known := d.volumes[item.Name]
		if !known || now.byPolicy() {
			now.reprovision = pv.Spec.ReclaimPolicy == "Delete"
		}
		if claim := pv.Spec.ClaimRef; claim != nil {
			now.claimSpace, now.claim = claim.Namespace, claim.Name
			d.lost.reconcile(&now, known)
		}
		d.volumes[item.Name] = now
	}
	return d, nil
}

// byInfo decides by what the backup did with the volume.
func byInfo(method, policy string, restorePVs bool) decision {
	switch {
	case method == methodCSI && !restorePVs:
		return decision{recorded: true, reprovision: true}
	case method == methodPod, method == methodCSI:
		return decision{recorded: true, reprovision: true, problem: notRestored(method)}
	}
	return decision{reprovision: policy == "Delete"}
}

// native decides about a volume that has, or should have, a native snapshot; nil where the backup
// lists none.
func native(s *nativesnapshot.Snapshot, restorePVs bool) decision {
	switch {
	case !restorePVs:
		return decision{recorded: true}
	case s == nil:
		return decision{recorded: true, reprovision: true,
			problem: "the backup has no complete snapshot of it: the claim gets a new, empty volume"}
	}
	return decision{recorded: true, snapshot: s}
}

// byVolume returns the complete snapshots by volume.
func byVolume(snapshots []nativesnapshot.Snapshot) map[string]*nativesnapshot.Snapshot {
	found := map[string]*nativesnapshot.Snapshot{}
	for i := range snapshots {
		s := &snapshots[i]
		if s.Status.Phase == nativesnapshot.PhaseCompleted && s.Status.ProviderSnapshotID != "" && s.Spec.PersistentVolumeName != "" {
			found[s.Spec.PersistentVolumeName] = s
		}
	}
	return found
}

// byPolicy reports that the backup took no data, so that the reclaim policy decides.
func (d decision) byPolicy() bool { return !d.recorded }

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

// Problem says why the data of a volume is not restored although the backup has it; "" when nothing
// is lost.
func (d *Decisions) Problem(volume string) string { return d.volumes[volume].problem }

// Claim returns namespace and name, as in the backup, of the claim a volume is bound to; empty when
// it is not bound.
func (d *Decisions) Claim(volume string) (namespace, name string) {
	v := d.volumes[volume]
	return v.claimSpace, v.claim
}
