package remove

import (
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/count"
)

// Metrics counts deletions under Velero's names. A nil *Metrics counts nothing.
type Metrics struct{ attempts, successes, failures *count.Counter }

// NewMetrics registers the counters; a failure is that of Err of the Schedules.
func NewMetrics(s *count.Schedules) *Metrics {
	return &Metrics{
		attempts:  s.Counter("velero_backup_deletion_attempt_total", "Attempted backup deletions."),
		successes: s.Counter("velero_backup_deletion_success_total", "Successful backup deletions."),
		failures:  s.Counter("velero_backup_deletion_failure_total", "Failed backup deletions."),
	}
}

func (m *Metrics) countAttempt(b *velerov1.Backup) {
	if m != nil {
		m.attempts.Inc(b.Labels[velerov1.LabelScheduleName])
	}
}

func (m *Metrics) countResult(b *velerov1.Backup, ok bool) {
	switch {
	case m == nil:
	case ok:
		m.successes.Inc(b.Labels[velerov1.LabelScheduleName])
	default:
		m.failures.Inc(b.Labels[velerov1.LabelScheduleName])
	}
}
