package poll

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters are the Metrics of a process; safe for concurrent use. The names of actions are no labels, for
// buckets hold them.
type Counters struct {
	polls  *prometheus.HistogramVec
	ended  *prometheus.CounterVec
	stalls prometheus.Counter
}

// NewCounters registers the counters, and open, which returns how many operations this process follows that
// have not ended.
func NewCounters(r prometheus.Registerer, open func() int) (*Counters, error) {
	m := &Counters{
		polls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_operation_poll_seconds", Help: "Time of calls about the progress of an operation, by result: running, ended, failed, unknown.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), //nolint:mnd // 1 ms to 65 s
		}, []string{"result"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_operations_ended_total", Help: "Operations whose end was recorded, by result: Completed, Failed.",
		}, []string{"result"}),
		stalls: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_operation_stalls_total", Help: "Operations that made no progress for the stall timeout.",
		}),
	}
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_operations_open", Help: "Operations that this process follows and that have not ended.",
	}, func() float64 { return float64(open()) })
	return m, errors.Join(r.Register(m.polls), r.Register(m.ended), r.Register(m.stalls), r.Register(gauge))
}

// Polled takes the time of a call about the progress of an operation.
func (m *Counters) Polled(result string, took time.Duration) {
	m.polls.WithLabelValues(result).Observe(took.Seconds())
}

// Ended counts an operation whose end was recorded.
func (m *Counters) Ended(result string) { m.ended.WithLabelValues(result).Inc() }

// Stalled counts an operation that makes no progress.
func (m *Counters) Stalled() { m.stalls.Inc() }
