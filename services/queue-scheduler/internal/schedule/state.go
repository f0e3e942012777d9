package schedule

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// baseTime is the time after which slots count (Velero's rule: the last backup, or the creation before
// there is one, and what was skipped). Both were noted when a slot started, which is offset after
// the slot.
func (set scheduleSettings) baseTime(s *velerov1.Schedule) time.Time {
	base := s.CreationTimestamp.Time
	if s.Status.LastBackup != nil {
		base = s.Status.LastBackup.Add(-set.offset)
	}
	if skipped := s.Status.LastSkipped; skipped != nil && skipped.Add(-set.offset).After(base) {
		base = skipped.Add(-set.offset)
	}
	return base
}

// dueSlot returns the latest slot whose start has come; those before it were missed and are covered by
// it.
func (set scheduleSettings) dueSlot(s *velerov1.Schedule, now time.Time) (time.Time, bool) {
	return latestSlot(set.slots, set.baseTime(s), now.Add(-set.offset))
}

// nextStart is when the next slot starts; zero for never.
func (set scheduleSettings) nextStart(s *velerov1.Schedule) time.Time {
	t := set.slots.Next(set.baseTime(s))
	if t.IsZero() {
		return t
	}
	return t.Add(set.offset)
}

// applyValidation writes the result of validation and skips slots: those due at this moment with
// skipImmediately (unset takes the server's default), and those that passed while the Schedule was paused or
// invalid or had another expression, unless it asks to make up for them. A paused Schedule keeps
// skipImmediately until it is resumed.
func (set scheduleSettings) applyValidation(s *velerov1.Schedule, problems []string, skipByDefault bool, now time.Time) {
	changed := activeChanged(s)
	s.Status.Phase = velerov1.SchedulePhaseEnabled
	if len(problems) > 0 {
		s.Status.Phase = velerov1.SchedulePhaseFailedValidation
	}
	if !slices.Equal(s.Status.ValidationErrors, problems) {
		s.Status.ValidationErrors = problems
	}
	if len(problems) > 0 || s.Spec.Paused {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, holdfast.AnnotationActiveSchedule, "")
		return
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, holdfast.AnnotationActiveSchedule, strings.TrimSpace(s.Spec.Schedule))
	if s.Spec.SkipImmediately == nil {
		s.Spec.SkipImmediately = ptr.To(skipByDefault)
	}
	_, due := set.dueSlot(s, now)
	if *s.Spec.SkipImmediately || changed && !set.catchUp && (due || !set.pending.IsZero()) {
		s.Spec.SkipImmediately = ptr.To(false)
		s.Status.LastSkipped = apiTime(now)
		delete(s.Annotations, holdfast.AnnotationPendingSlot)
	}
}

// activeChanged reports whether other slots counted before than those that the spec asks for. A
// Schedule without a note is new, or from an earlier version.
func activeChanged(s *velerov1.Schedule) bool {
	active, noted := s.Annotations[holdfast.AnnotationActiveSchedule]
	if !noted {
		return s.Status.Phase == velerov1.SchedulePhaseFailedValidation
	}
	return active != strings.TrimSpace(s.Spec.Schedule)
}

// reserveSlot promises the Backup of a slot.
func reserveSlot(s *velerov1.Schedule, slot, now time.Time) {
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, holdfast.AnnotationPendingSlot, slot.UTC().Format(time.RFC3339))
	s.Status.LastBackup = apiTime(now)
}

// apiTime is a time as the API server keeps it.
func apiTime(t time.Time) *metav1.Time { return &metav1.Time{Time: t.UTC().Truncate(time.Second)} }
