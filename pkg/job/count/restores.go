package count

import (
	"cmp"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Restores count restores by the schedule of their backup. Safe for concurrent use.
type Restores struct {
	attempts *Counter
	phases   map[velerov1.RestorePhase]*Counter
}

// NewRestores registers the counters.
func NewRestores(s *Schedules) (*Restores, error) {
	r := &Restores{
		attempts: s.Counter("velero_restore_attempt_total", "Restores begun."),
		phases: map[velerov1.RestorePhase]*Counter{
			velerov1.RestorePhaseCompleted:        s.Counter("velero_restore_success_total", "Restores completed without an error."),
			velerov1.RestorePhasePartiallyFailed:  s.Counter("velero_restore_partial_failure_total", "Restores completed with errors of single objects."),
			velerov1.RestorePhaseFailed:           s.Counter("velero_restore_failed_total", "Restores that failed as a whole."),
			velerov1.RestorePhaseFailedValidation: s.Counter("velero_restore_validation_failed_total", "Restores that failed validation."),
		},
	}
	return r, s.Err()
}

// Begun counts a restore that a runner took for the first time.
func (c *Restores) Begun(schedule string) { c.attempts.Inc(schedule) }

// Ended counts a restore that got a terminal phase. It is for the process that wrote the phase,
// once that is durable.
func (c *Restores) Ended(schedule string, phase velerov1.RestorePhase) {
	if counter, ok := c.phases[phase]; ok {
		counter.Inc(schedule)
	}
}

// EndedAs is Ended for a restore whose backup is not at hand: the schedule is what the object says,
// which is known where it restores the newest backup of a schedule.
func (c *Restores) EndedAs(r *velerov1.Restore) {
	c.Ended(cmp.Or(r.Spec.ScheduleName, r.Labels[velerov1.LabelScheduleName]), r.Status.Phase)
}
