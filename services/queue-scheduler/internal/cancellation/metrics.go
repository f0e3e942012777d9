package cancellation

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts the jobs that this service ended because they were cancelled, which are also among
// those that Counter gets.
type Metrics struct{ jobs *prometheus.CounterVec }

// NewMetrics registers the counters.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_queue_cancelled_total", Help: "Cancelled jobs that queue-scheduler ended, by kind and by whether they waited or were taken from their runner.",
	}, []string{"kind", "how"})}
	return m, r.Register(m.jobs)
}

func (m *Metrics) ended(kind, how string) { m.jobs.WithLabelValues(kind, how).Inc() }
