package volumes

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// noteFailed notes a snapshot that was not taken, or of which nothing is known.
func (d *volumeDecision) noteFailed(pv *corev1.PersistentVolume, s *nativesnapshot.Snapshot, cause error) error {
	s.Status.Phase = nativesnapshot.PhaseFailed
	return d.noteTaken(pv, s, nil, cause)
}

// noteTaken notes how a snapshot came out.
func (d *volumeDecision) noteTaken(pv *corev1.PersistentVolume, s *nativesnapshot.Snapshot, started *metav1.Time, cause error) error {
	var claim *checkpoint.VolumeInfo
	if len(d.volume.Claims) > 0 {
		claim = &d.volume.Claims[0]
	}
	info := checkpoint.SnapshotVolume(pv, claim, s)
	if started != nil {
		ended := metav1.NewTime(d.cfg.Clock.Now())
		info.StartTimestamp, info.CompletionTimestamp = started, &ended
	}
	record := &d.out.Record
	record.Volumes = append(record.Volumes, info)
	record.Snapshots = append(record.Snapshots, *s)
	if cause == nil {
		return nil
	}
	return d.out.Fail(partwriter.EntryAbout(plan.Volumes, "", d.name, "no snapshot of this volume: its data is not backed up", cause))
}

// noteUntaken notes that there is no way to take the volume: a warning, or an error where that is not
// known, the backup requires snapshots, or a CSI snapshot could have been taken. A location without
// its plugin is often one that Velero left behind. There is no message about the volume of a CSI
// driver whose claim is not in the backup: no snapshot is taken of such a volume, and a claim that
// failed was reported.
func (d *volumeDecision) noteUntaken(cause error) error {
	missing, csi := new(nativesnapshot.NoPluginError), new(CSIError)
	reason, note := checkpoint.ReasonNoSnapshotter, d.out.Warn
	counts := d.cfg.Insist || cause != nil && !errors.As(cause, &missing)
	if errors.As(cause, &csi) {
		if len(d.volume.Claims) == 0 {
			return nil
		}
		reason, counts, cause = csi.Error(), d.cfg.Insist || !csi.Unserved(), nil
	}
	if counts {
		note = d.out.Fail
	}
	record := &d.out.Record
	entries := make([]joblog.Entry, 0, len(d.volume.Claims))
	for i := range d.volume.Claims {
		claim := d.volume.Claims[i]
		claim.Pending, claim.Skipped, claim.SkippedReason = false, true, reason
		record.Volumes = append(record.Volumes, claim)
		entries = append(entries, partwriter.EntryAbout(plan.Claims, claim.PVCNamespace, claim.PVCName, "volume data was not backed up: "+claim.SkippedReason, cause))
	}
	if len(entries) == 0 && counts {
		record.Volumes = append(record.Volumes, checkpoint.VolumeInfo{PVName: d.name, Skipped: true, SkippedReason: checkpoint.ReasonNoSnapshotter})
		entries = append(entries, partwriter.EntryAbout(plan.Volumes, "", d.name, "volume data was not backed up: "+checkpoint.ReasonNoSnapshotter, cause))
	}
	for _, e := range entries {
		if err := note(e); err != nil {
			return err
		}
	}
	return nil
}
