// Package volume decides what becomes of the PersistentVolumes of a backup: brought back as they were, or left out so
// that their claims get new ones. The rules are Velero 1.18's, from the backup's volume information and the volumes' own
// reclaim policy.
package volume

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/manifest"
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

// Reader reads the body of an item.
type Reader func(ctx context.Context, item manifest.Item) ([]byte, error)

// Decisions holds what was decided. It does not change and is safe for concurrent use.
type Decisions struct {
	volumes map[string]decision
}

type decision struct {
	reprovision       bool
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

// Decide reads the volumes of a backup one after the other. infos may be nil for backups without volume information.
// restorePVs is the restore's setting: data asked for and not restorable by this version becomes a Problem. A volume whose
// body cannot be read is decided by its information alone; restoring it will report the reason.
func Decide(ctx context.Context, items []manifest.Item, read Reader, infos []Info, restorePVs bool) (*Decisions, error) {
	d := &Decisions{volumes: map[string]decision{}}
	for _, info := range infos {
		if info.PVName == "" {
			continue
		}
		policy := ""
		if info.PVInfo != nil {
			policy = info.PVInfo.ReclaimPolicy
		}
		d.volumes[info.PVName] = byInfo(info.BackupMethod, policy, restorePVs)
	}
	for _, item := range items {
		body, err := read(ctx, item)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read PersistentVolume %q: %w", item.Name, context.Cause(ctx))
		}
		var pv stored
		if err != nil || json.Unmarshal(body, &pv) != nil {
			continue
		}
		now, known := d.volumes[item.Name]
		if !known || now.byPolicy() {
			now.reprovision = pv.Spec.ReclaimPolicy == "Delete"
		}
		if claim := pv.Spec.ClaimRef; claim != nil {
			now.claimSpace, now.claim = claim.Namespace, claim.Name
		}
		d.volumes[item.Name] = now
	}
	return d, nil
}

// byInfo decides by what the backup did with the volume.
func byInfo(method, policy string, restorePVs bool) decision {
	switch {
	case method == methodNative && !restorePVs:
		return decision{recorded: true}
	case method == methodCSI && !restorePVs:
		return decision{recorded: true, reprovision: true}
	case method == methodNative, method == methodPod, method == methodCSI:
		return decision{recorded: true, reprovision: true,
			problem: "its data is in a " + method + ", which this version does not restore: the claim gets a new, empty volume"}
	}
	return decision{reprovision: policy == "Delete"}
}

// byPolicy tells that the backup took no data, so that the reclaim policy decides.
func (d decision) byPolicy() bool { return !d.recorded }

// Reprovision tells that the volume does not come back.
func (d *Decisions) Reprovision(volume string) bool { return d.volumes[volume].reprovision }

// Problem says why the data of a volume is not restored although the backup has it; "" when nothing is lost.
func (d *Decisions) Problem(volume string) string { return d.volumes[volume].problem }

// Claim returns namespace and name, as in the backup, of the claim a volume is bound to; empty when it is not bound.
func (d *Decisions) Claim(volume string) (namespace, name string) {
	v := d.volumes[volume]
	return v.claimSpace, v.claim
}
