// Package metrics counts backups under the names Velero's dashboards and alerts know (Velero 1.18,
// prefix velero_).
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Metrics are the counters of one process. Safe for concurrent use.
type Metrics struct {
	attempts, successes, partial, failures, warnings *prometheus.CounterVec
	tarball, lastSuccess, items, errors, lastStatus  *prometheus.GaugeVec
	duration                                         *prometheus.HistogramVec

	snapshots, snapshotsTaken, snapshotsFailed *prometheus.CounterVec
}

const schedule = "schedule"

// durationBuckets are 1, 5, 10, 15, 30 minutes and 1 to 4 hours.
var durationBuckets = []float64{60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400}

// New registers the metrics.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		attempts:    counter("backup_attempt_total", "Backups begun"),
		successes:   counter("backup_success_total", "Backups that ended Completed"),
		partial:     counter("backup_partial_failure_total", "Backups that ended PartiallyFailed"),
		failures:    counter("backup_failure_total", "Backups that ended Failed"),
		warnings:    counter("backup_warning_total", "Warnings of backups"),
		tarball:     gauge("backup_tarball_size_bytes", "Size of the last backup's tarball"),
		lastSuccess: gauge("backup_last_successful_timestamp", "When the last Completed backup ended, Unix seconds"),
		items:       gauge("backup_items_total", "Objects of the last backup"),
		errors:      gauge("backup_items_errors", "Errors of the last backup"),
		lastStatus:  gauge("backup_last_status", "1 if the last backup ended Completed, else 0"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "velero", Name: "backup_duration_seconds",
			Help: "Time from start to end of backups", Buckets: durationBuckets}, []string{schedule}),

		snapshots:       counter("volume_snapshot_attempt_total", "Native snapshots begun"),
		snapshotsTaken:  counter("volume_snapshot_success_total", "Native snapshots taken"),
		snapshotsFailed: counter("volume_snapshot_failure_total", "Native snapshots that failed, or whose result is not known"),
	}
	for _, c := range []prometheus.Collector{m.attempts, m.successes, m.partial, m.failures, m.warnings, m.tarball,
		m.lastSuccess, m.items, m.errors, m.lastStatus, m.duration, m.snapshots, m.snapshotsTaken, m.snapshotsFailed} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func counter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "velero", Name: name, Help: help}, []string{schedule})
}

func gauge(name, help string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "velero", Name: name, Help: help}, []string{schedule})
}

// Attempt counts a backup that begins.
func (m *Metrics) Attempt(scheduleName string) { m.attempts.WithLabelValues(scheduleName).Inc() }

// Finished counts a backup that reached its end; size is its tarball's in bytes, 0 if that is not
// known.
func (m *Metrics) Finished(b *velerov1.Backup, size int64) {
	name := b.Labels[velerov1.LabelScheduleName]
	status := 0.0
	switch b.Status.Phase {
	case velerov1.BackupPhaseCompleted:
		status = 1
		m.successes.WithLabelValues(name).Inc()
		if end := b.Status.CompletionTimestamp; end != nil {
			m.lastSuccess.WithLabelValues(name).Set(float64(end.Unix()))
		}
	case velerov1.BackupPhasePartiallyFailed:
		m.partial.WithLabelValues(name).Inc()
	case velerov1.BackupPhaseFailed:
		m.failures.WithLabelValues(name).Inc()
	default:
		return
	}
	m.lastStatus.WithLabelValues(name).Set(status)
	m.warnings.WithLabelValues(name).Add(float64(b.Status.Warnings))
	m.errors.WithLabelValues(name).Set(float64(b.Status.Errors))
	begun, taken := b.Status.VolumeSnapshotsAttempted, b.Status.VolumeSnapshotsCompleted
	m.snapshots.WithLabelValues(name).Add(float64(begun))
	m.snapshotsTaken.WithLabelValues(name).Add(float64(taken))
	m.snapshotsFailed.WithLabelValues(name).Add(float64(max(begun-taken, 0)))
	if p := b.Status.Progress; p != nil {
		m.items.WithLabelValues(name).Set(float64(p.TotalItems))
	}
	if size > 0 {
		m.tarball.WithLabelValues(name).Set(float64(size))
	}
	start, end := b.Status.StartTimestamp, b.Status.CompletionTimestamp
	if start != nil && end != nil {
		m.duration.WithLabelValues(name).Observe(end.Sub(start.Time).Seconds())
	}
}
