package sweep

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what sweeps do, by location. A nil *Metrics counts nothing.
type Metrics struct {
	objects, bytes, uploads, passes, errors *prometheus.CounterVec
	untouched                               *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"location"}, labels...))
		r.MustRegister(c)
		return c
	}
	m := &Metrics{
		objects: counter("holdfast_sweep_removed_objects_total", "Objects that dead or deleted jobs left and a sweep removed."),
		bytes:   counter("holdfast_sweep_removed_bytes_total", "Size of the objects that sweeps removed."),
		uploads: counter("holdfast_sweep_aborted_uploads_total", "Unfinished uploads that sweeps ended."),
		passes:  counter("holdfast_sweep_passes_total", "Sweeps of a location.", "result"),
		errors:  counter("holdfast_sweep_errors_total", "Directories that a sweep could not finish."),
		untouched: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_sweep_untouched_directories", Help: "Unfinished directories that the last sweep left alone: they are another cluster's, have no owner file, or one that cannot be read.",
		}, []string{"location", "reason"}),
	}
	r.MustRegister(m.untouched)
	return m
}

func (m *Metrics) countPass(location string, c *passCounts, err error) {
	if m == nil {
		return
	}
	m.objects.WithLabelValues(location).Add(float64(c.objects))
	m.bytes.WithLabelValues(location).Add(float64(c.bytes))
	m.uploads.WithLabelValues(location).Add(float64(c.uploads))
	m.errors.WithLabelValues(location).Add(float64(c.failed))
	result := "complete"
	if err != nil || c.failed > 0 {
		result = "incomplete"
	}
	m.passes.WithLabelValues(location, result).Inc()
	for reason, n := range map[string]int{"unowned": c.unowned, "foreign": c.foreign, "unreadable": c.unreadable} {
		m.untouched.WithLabelValues(location, reason).Set(float64(n))
	}
}
