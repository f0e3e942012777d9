// Package metrics counts restores under Velero's names.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Metrics of restores; label schedule is the schedule of the backup, "" when it has none (Velero
// 1.18). Safe for concurrent use.
type Metrics struct {
	attempts, successes, partial, failures *prometheus.CounterVec
	restores                               prometheus.Gauge
	items                                  *prometheus.CounterVec
}

// New registers the metrics.
func New(registry prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"schedule"})
	}
	m := &Metrics{
		attempts:  counter("velero_restore_attempt_total", "Restores begun."),
		successes: counter("velero_restore_success_total", "Restores completed without an error."),
		partial:   counter("velero_restore_partial_failure_total", "Restores completed with errors of single objects."),
		failures:  counter("velero_restore_failed_total", "Restores that failed as a whole."),
		restores:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "velero_restore_total", Help: "Restores that exist."}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_restore_items_total", Help: "Objects restored, by what became of them.",
		}, []string{"action"}),
	}
	for _, c := range []prometheus.Collector{m.attempts, m.successes, m.partial, m.failures, m.restores, m.items} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Begin counts a restore that a runner took for the first time.
func (m *Metrics) Begin(schedule string) { m.attempts.WithLabelValues(schedule).Inc() }

// End counts a restore by its terminal phase.
func (m *Metrics) End(schedule string, phase velerov1.RestorePhase) {
	switch phase {
	case velerov1.RestorePhaseCompleted:
		m.successes.WithLabelValues(schedule).Inc()
	case velerov1.RestorePhasePartiallyFailed:
		m.partial.WithLabelValues(schedule).Inc()
	case velerov1.RestorePhaseFailed:
		m.failures.WithLabelValues(schedule).Inc()
	default:
	}
}

// Items counts objects by action.
func (m *Metrics) Items(byAction map[string]int) {
	for action, n := range byAction {
		m.items.WithLabelValues(action).Add(float64(n))
	}
}

// Exist sets how many restores there are.
func (m *Metrics) Exist(n int) { m.restores.Set(float64(n)) }
