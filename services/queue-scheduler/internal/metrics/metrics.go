// Package metrics counts what queue-scheduler refuses, under Velero's names.
package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the counters; safe for concurrent use.
type Metrics struct{ backups, restores *prometheus.CounterVec }

// New registers the counters.
func New(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"schedule"})
	}
	m := &Metrics{
		backups:  counter("velero_backup_validation_failure_total", "Backups that failed validation, by schedule."),
		restores: counter("velero_restore_validation_failed_total", "Restores that failed validation, by schedule."),
	}
	return m, errors.Join(r.Register(m.backups), r.Register(m.restores))
}

// BackupRefused counts a Backup that failed validation.
func (m *Metrics) BackupRefused(schedule string) { m.backups.WithLabelValues(schedule).Inc() }

// RestoreRefused counts a Restore that failed validation.
func (m *Metrics) RestoreRefused(schedule string) { m.restores.WithLabelValues(schedule).Inc() }
