// Package metrics counts what queue-scheduler refuses, under Velero's names, and takes the time of
// its walks along the queue.
package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the counters; safe for concurrent use.
type Metrics struct {
	backups, restores *prometheus.CounterVec
	walks             prometheus.Histogram
}

// New registers the counters.
func New(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"schedule"})
	}
	m := &Metrics{
		backups:  counter("velero_backup_validation_failure_total", "Backups that failed validation, by schedule."),
		restores: counter("velero_restore_validation_failed_total", "Restores that failed validation, by schedule."),
		walks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_queue_walk_seconds", Help: "Time to order the queue and decide about everybody in it, without calls to the API server.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8), //nolint:mnd // 0.1 ms to 1.6 s
		}),
	}
	return m, errors.Join(r.Register(m.backups), r.Register(m.restores), r.Register(m.walks))
}

// BackupRefused counts a Backup that failed validation.
func (m *Metrics) BackupRefused(schedule string) { m.backups.WithLabelValues(schedule).Inc() }

// RestoreRefused counts a Restore that failed validation.
func (m *Metrics) RestoreRefused(schedule string) { m.restores.WithLabelValues(schedule).Inc() }

// QueueWalked takes the time of a walk.
func (m *Metrics) QueueWalked(took time.Duration) { m.walks.Observe(took.Seconds()) }
