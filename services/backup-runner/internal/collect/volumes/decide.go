package volumes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// decideVolume takes the snapshot, or notes why there is none.
func (d *volumeDecision) decideVolume(ctx context.Context) error {
	if before, begun := d.cfg.Past.Intended[d.name]; begun {
		return d.noteFailed(nil, &before, ErrUnclear)
	}
	taken, problem := d.isTakenWithPod(ctx)
	if end := d.cfg.interruptionOf(ctx, problem); end != nil {
		return end
	}
	switch {
	case taken:
		return nil
	case problem != nil:
		return d.noteUntaken(problem)
	}
	v, err := d.cfg.Taker.FindNamed(ctx, d.cfg.Finder, d.res, d.name, d.volume)
	if end := d.cfg.interruptionOf(ctx, err); end != nil {
		return end
	}
	switch {
	case v.Snapshot.Spec.Location == "":
		return d.noteUntaken(err)
	case err != nil:
		return d.noteFailed(v.PV, &v.Snapshot, err)
	}
	err = d.lockVolume(ctx, v.Snapshot.Spec.ProviderVolumeID)
	if end := d.cfg.interruptionOf(ctx, err); end != nil {
		return end
	}
	if err != nil {
		return d.noteFailed(v.PV, &v.Snapshot, err)
	}
	return d.takeSnapshot(ctx, &v)
}

// isTakenWithPod reports whether the volume is taken by file-system backup, and notes it then.
func (d *volumeDecision) isTakenWithPod(ctx context.Context) (bool, error) {
	if d.cfg.PodVolumes == nil {
		return false, nil
	}
	for i := range d.volume.Claims {
		claim := d.volume.Claims[i]
		taken, err := d.cfg.PodVolumes.Takes(ctx, claim.PVCNamespace, claim.PVCName, d.cfg.Final)
		if err != nil {
			return false, err
		}
		if taken {
			claim.Pending, claim.Method, claim.Result = false, checkpoint.MethodPodVolume, checkpoint.Failed
			d.out.Record.Volumes = append(d.out.Record.Volumes, claim)
			return true, nil
		}
	}
	return false, nil
}

// takeSnapshot takes the snapshot of a volume that is locked.
func (d *volumeDecision) takeSnapshot(ctx context.Context, v *NativeVolume) error {
	cfg, uploads := d.cfg, d.out.Uploads()
	failpoint.Hit("backup-runner/volume-locked")
	started := metav1.NewTime(cfg.Clock.Now())
	if err := cfg.Intents.Snapshot(uploads, &v.Snapshot); err != nil {
		return err
	}
	failpoint.Hit("backup-runner/snapshot-announced")
	id, err := cfg.Taker.Take(uploads, v)
	failpoint.Hit("backup-runner/snapshot-taken")
	if id != "" { // should the bucket never learn of it
		cfg.Log.InfoContext(ctx, "Took snapshot", "snapshot", id, "volume", d.name, "location", v.Snapshot.Spec.Location)
	}
	if err != nil && uploads.Err() != nil {
		return context.Cause(uploads) // nothing is known of it, so the lock stays with the backup
	}
	v.Snapshot.Status = nativesnapshot.Status{ProviderSnapshotID: id, Phase: nativesnapshot.PhaseCompleted}
	if err != nil {
		v.Snapshot.Status.Phase = nativesnapshot.PhaseFailed
	}
	return d.noteTaken(v.PV, &v.Snapshot, &started, err)
}

// lockVolume waits until this backup alone takes a snapshot of the volume.
func (d *volumeDecision) lockVolume(ctx context.Context, volumeID string) error {
	if d.cfg.Lock == nil {
		return nil
	}
	unlock, err := d.cfg.Lock(ctx, volumeID)
	if err == nil {
		d.unlock = unlock
	}
	return err
}
