package dryrun

import (
	"context"
	"errors"
	"maps"
	"slices"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
)

// decideVolumes decides on the volumes as the run does at its end, and adds the reasons to the rows of claims and volumes.
func (p *planner) decideVolumes(ctx context.Context) error {
	if p.Snapshots != nil {
		defer p.Snapshots.Close()
	}
	undecided := p.facts.Undecided()
	for _, name := range slices.Sorted(maps.Keys(undecided)) {
		volume := undecided[name]
		taken, reason := p.decideVolume(ctx, name, volume)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		text := "volume data would be taken: " + reason
		if !taken {
			text = "volume data would not be taken: " + reason
		}
		rows := []storedplan.Row{{Kind: "PersistentVolume", Name: name, Reasons: []string{text}}}
		decided := Volume{Name: name, Taken: taken, Reason: reason}
		for i := range volume.Claims {
			c := &volume.Claims[i]
			decided.Claim = c.PVCNamespace + "/" + c.PVCName
			rows = append(rows, storedplan.Row{Kind: "PersistentVolumeClaim", Namespace: c.PVCNamespace, Name: c.PVCName, Reasons: []string{text}})
			p.result.Volumes = append(p.result.Volumes, decided)
		}
		if len(volume.Claims) == 0 {
			p.result.Volumes = append(p.result.Volumes, decided)
		}
		for i := range rows {
			if err := p.addRow(rows[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// isOptedOut reports whether the backup is not to have snapshots of volumes.
func isOptedOut(b *velerov1.Backup) bool {
	return b.Spec.SnapshotVolumes != nil && !*b.Spec.SnapshotVolumes
}

// decideVolume reports whether the data of a volume would be taken, and how, or why not.
func (p *planner) decideVolume(ctx context.Context, name string, volume volumes.Volume) (taken bool, reason string) {
	for i := range volume.Claims {
		if p.Actions.PodVolumes == nil {
			break
		}
		claim := &volume.Claims[i]
		with, err := p.Actions.PodVolumes.Takes(ctx, claim.PVCNamespace, claim.PVCName, false)
		switch {
		case err != nil:
			return false, err.Error()
		case with:
			return true, "file-system backup"
		}
	}
	res, _ := p.Catalog.Lookup(plan.Volumes)
	v, err := p.Snapshots.FindNamed(ctx, p.finder, &res, name, volume)
	csi := new(volumes.CSIError)
	switch {
	case errors.As(err, &csi) && len(volume.Claims) == 0:
		return false, "no claim of it is in the backup"
	case errors.As(err, &csi) && errors.Is(err, csisnapshot.ErrMissed):
		return true, "CSI snapshot"
	case errors.As(err, &csi):
		return false, csi.Error()
	case v.Snapshot.Spec.Location != "" && err == nil:
		return true, "native snapshot in VolumeSnapshotLocation " + v.Snapshot.Spec.Location
	case err != nil:
		return false, checkpoint.ReasonNoSnapshotter + ": " + err.Error()
	}
	return false, checkpoint.ReasonNoSnapshotter
}
