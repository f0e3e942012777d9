package cancellation

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the cancelled jobs that this service ended, which are also among those that Counter
// gets, and those that it took from their runner.
type Metrics struct{ jobs *prometheus.CounterVec }

// NewMetrics registers the counters.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_queue_cancelled_total", Help: "Cancelled jobs that queue-scheduler ended while they waited, or took from a runner that did not stop them in time, by kind and how.",
	}, []string{"kind", "how"})}
	return m, r.Register(m.jobs)
}

func (m *Metrics) count(kind, how string) { m.jobs.WithLabelValues(kind, how).Inc() }
