package schedule

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts under Holdfast's own names: Velero 1.18 has none for this.
type Metrics struct{ made *prometheus.CounterVec }

// NewMetrics registers the counters.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{made: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_schedule_backups_total", Help: "Backups made by a schedule.",
	}, []string{"schedule"})}
	return m, r.Register(m.made)
}

// BackupMade implements Counter.
func (m *Metrics) BackupMade(schedule string) { m.made.WithLabelValues(schedule).Inc() }
