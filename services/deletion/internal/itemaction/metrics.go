package itemaction

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts calls of actions. A nil *Metrics counts nothing.
type Metrics struct{ calls *prometheus.CounterVec }

// NewMetrics registers the counters.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{calls: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_delete_item_actions_total", Help: "Items shown to delete item actions, by result: done or failed.",
	}, []string{"action", "result"})}
	r.MustRegister(m.calls)
	return m
}

func (m *Metrics) countCall(action string, err error) {
	if m == nil {
		return
	}
	result := "done"
	if err != nil {
		result = "failed"
	}
	m.calls.WithLabelValues(action, result).Inc()
}
