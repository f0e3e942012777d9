package engine

import "github.com/prometheus/client_golang/prometheus"

// engineMetrics are those of the jobs of one kind that this process works on.
type engineMetrics struct{ takeovers prometheus.Counter }

func newMetrics(r prometheus.Registerer, kind string, running func() int) *engineMetrics {
	labels := prometheus.Labels{"kind": kind}
	m := &engineMetrics{takeovers: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_job_takeovers_total", Help: "Jobs that this process took over from another one that died.", ConstLabels: labels,
	})}
	if r == nil {
		return m
	}
	r.MustRegister(m.takeovers, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_jobs_running", Help: "Jobs that this process works on.", ConstLabels: labels,
	}, func() float64 { return float64(running()) }))
	return m
}
