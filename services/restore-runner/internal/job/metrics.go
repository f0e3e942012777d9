package job

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/pkg/job/count"
)

// Metrics of restores; label schedule is the schedule of the backup, "" when it has none (Velero
// 1.18). Safe for concurrent use.
type Metrics struct {
	*count.Restores
	items *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer, s *count.Schedules) (*Metrics, error) {
	restores, err := count.NewRestores(s)
	if err != nil {
		return nil, err
	}
	m := &Metrics{Restores: restores, items: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_restore_items_total", Help: "Objects restored, by what became of them.",
	}, []string{"action"})}
	return m, registry.Register(m.items)
}

// Items counts objects by action.
func (m *Metrics) Items(byAction map[string]int) {
	for action, n := range byAction {
		m.items.WithLabelValues(action).Add(float64(n))
	}
}
