package metrics

import (
	"sync"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/schedule"
)

// lifetime is how long an interval is kept: it depends on the time of the year.
const lifetime = 24 * time.Hour

// intervalCache remembers the intervals of Schedules by their cron expressions, as far as Schedules
// have these.
type intervalCache struct {
	mu    sync.Mutex
	at    time.Time
	known map[string]time.Duration // 0 for an expression without one
}

// scheduleIntervals returns the intervals of the Schedules that make backups, by name.
func (n *intervalCache) scheduleIntervals(schedules []velerov1.Schedule, now time.Time) map[string]time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now.Sub(n.at) > lifetime || now.Before(n.at) {
		n.known, n.at = nil, now
	}
	used, found := map[string]time.Duration{}, map[string]time.Duration{}
	for i := range schedules {
		s := &schedules[i]
		if s.Spec.Paused || s.Status.Phase != velerov1.SchedulePhaseEnabled {
			continue
		}
		interval, ok := n.known[s.Spec.Schedule]
		if !ok {
			interval = schedule.Interval(s.Spec.Schedule, now)
		}
		used[s.Spec.Schedule] = interval
		if interval > 0 {
			found[s.Name] = interval
		}
	}
	n.known = used
	return found
}
