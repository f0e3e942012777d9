package schedule

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// reportPhase reports that the phase of a Schedule changed.
func (p *schedulePass) reportPhase(s *velerov1.Schedule, before velerov1.SchedulePhase) {
	if s.Status.Phase == before {
		return
	}
	p.Log.Info("Schedule validated", "schedule", s.Name, "phase", s.Status.Phase, "problems", s.Status.ValidationErrors)
	if s.Status.Phase == velerov1.SchedulePhaseFailedValidation {
		p.Events.Eventf(s, nil, corev1.EventTypeWarning, "FailedValidation", "Validate", "%s", strings.Join(s.Status.ValidationErrors, "; "))
	}
}

// reportSkipped reports the latest slot that was skipped; before is the Schedule without the skip.
func (p *schedulePass) reportSkipped(s *velerov1.Schedule, set scheduleSettings, before *velerov1.Schedule) {
	slot, due := set.dueSlot(before, p.now)
	if !due {
		slot = set.pending
	}
	if slot.IsZero() {
		return
	}
	p.Log.Info("Skipped slot of schedule", "schedule", s.Name, "slot", slot.UTC())
	p.Events.Eventf(s, nil, corev1.EventTypeNormal, "Skipped", "Validate", "skipped the backup due at %s: spec.skipImmediately was set, or the time "+
		"passed while the Schedule was paused, invalid or had another expression; annotation %s=true makes up for such times",
		slot.UTC().Format(time.RFC3339), holdfast.AnnotationCatchUp)
}

// reportWaiting reports, once per slot, what a slot waits for.
func (p *schedulePass) reportWaiting(s *velerov1.Schedule, slot time.Time, running string) {
	if p.reported[s.UID].Equal(slot) {
		return
	}
	p.reported[s.UID] = slot
	p.Log.Info("Slot waits for an earlier backup of its schedule", "schedule", s.Name, "slot", slot.UTC(), "backup", running)
	p.Events.Eventf(s, nil, corev1.EventTypeNormal, "Waiting", "Start", "the backup due at %s waits for %s", slot.UTC().Format(time.RFC3339), running)
}

func (p *schedulePass) reportCreated(s *velerov1.Schedule, backup string, slot time.Time) {
	p.CountBackup(s.Name)
	p.Log.Info("Schedule created a backup", "schedule", s.Name, "backup", backup, "slot", slot.UTC())
	p.Events.Eventf(s, nil, corev1.EventTypeNormal, "BackupCreated", "Create", "backup %s", backup)
}
