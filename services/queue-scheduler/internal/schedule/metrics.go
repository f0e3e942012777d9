package schedule

import (
	"github.com/holdfast-io/holdfast/pkg/job/count"
)

// Metrics counts under Holdfast's own names: Velero 1.18 has none for this.
type Metrics struct{ made *count.Counter }

// NewMetrics registers the counters.
func NewMetrics(s *count.Schedules) (*Metrics, error) {
	m := &Metrics{made: s.Counter("holdfast_schedule_backups_total", "Backups made by a schedule.")}
	return m, s.Err()
}

// BackupMade implements Counter.
func (m *Metrics) BackupMade(schedule string) { m.made.Inc(schedule) }
