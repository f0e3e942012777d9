package remove

import (
	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Metrics counts deletions under Velero's names. A nil *Metrics counts nothing.
type Metrics struct{ attempts, successes, failures *prometheus.CounterVec }

// NewMetrics registers the counters.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"schedule"})
		r.MustRegister(c)
		return c
	}
	return &Metrics{
		attempts:  counter("velero_backup_deletion_attempt_total", "Attempted backup deletions."),
		successes: counter("velero_backup_deletion_success_total", "Successful backup deletions."),
		failures:  counter("velero_backup_deletion_failure_total", "Failed backup deletions."),
	}
}

func (m *Metrics) attempt(b *velerov1.Backup) {
	if m != nil {
		m.attempts.WithLabelValues(b.Labels[velerov1.LabelScheduleName]).Inc()
	}
}

func (m *Metrics) result(b *velerov1.Backup, ok bool) {
	switch {
	case m == nil:
	case ok:
		m.successes.WithLabelValues(b.Labels[velerov1.LabelScheduleName]).Inc()
	default:
		m.failures.WithLabelValues(b.Labels[velerov1.LabelScheduleName]).Inc()
	}
}
