package count

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// durationBuckets are 1, 5, 10, 15, 30 minutes and 1 to 4 hours (Velero 1.18).
var durationBuckets = []float64{60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400}

// Backups count backups by their schedule. Safe for concurrent use.
type Backups struct {
	attempts, warnings *Counter
	phases             map[velerov1.BackupPhase]*Counter
	duration           *scheduleHistogram
	native, csi        snapshotCounters
}

// snapshotCounters count snapshots of volumes when their backup has ended.
type snapshotCounters struct{ attempts, successes, failures *Counter }

// NewBackups registers the counters.
func NewBackups(s *Schedules) (*Backups, error) {
	b := &Backups{
		attempts: s.Counter("velero_backup_attempt_total", "Backups begun."),
		warnings: s.Counter("velero_backup_warning_total", "Warnings of backups that ended."),
		phases: map[velerov1.BackupPhase]*Counter{
			velerov1.BackupPhaseCompleted:        s.Counter("velero_backup_success_total", "Backups that ended Completed."),
			velerov1.BackupPhasePartiallyFailed:  s.Counter("velero_backup_partial_failure_total", "Backups that ended PartiallyFailed."),
			velerov1.BackupPhaseFailed:           s.Counter("velero_backup_failure_total", "Backups that ended Failed."),
			velerov1.BackupPhaseFailedValidation: s.Counter("velero_backup_validation_failure_total", "Backups that failed validation."),
		},
		duration: s.newDurations("velero_backup_duration_seconds", "Time from start to end of backups."),
		native: snapshotCounters{
			attempts:  s.Counter("velero_volume_snapshot_attempt_total", "Native snapshots begun."),
			successes: s.Counter("velero_volume_snapshot_success_total", "Native snapshots taken."),
			failures:  s.Counter("velero_volume_snapshot_failure_total", "Native snapshots that failed, or whose result is not known."),
		},
		csi: snapshotCounters{
			attempts:  s.perBackup("velero_csi_snapshot_attempt_total", "CSI snapshots begun."),
			successes: s.perBackup("velero_csi_snapshot_success_total", "CSI snapshots taken."),
			failures:  s.perBackup("velero_csi_snapshot_failure_total", "CSI snapshots that failed, or whose result is not known."),
		},
	}
	return b, s.Err()
}

// scheduleHistogram is a histogram with the label schedule.
type scheduleHistogram struct {
	schedules *Schedules
	vec       *prometheus.HistogramVec
}

func (h *scheduleHistogram) observeDuration(schedule string, took time.Duration) {
	h.schedules.withSeries(schedule, func(value string) { h.vec.WithLabelValues(value).Observe(took.Seconds()) })
}

// newDurations registers a histogram of the durations of jobs.
func (s *Schedules) newDurations(name, help string) *scheduleHistogram {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: durationBuckets}, []string{labelSchedule})
	s.addMetric(vec, metricSet{
		begin:  func(schedule string) { vec.WithLabelValues(schedule) },
		remove: func(schedule string) { vec.DeleteLabelValues(schedule) },
	})
	return &scheduleHistogram{s, vec}
}

// perBackup registers a counter that also has Velero's label backupName, which is empty here: a
// series for each backup would begin at its only value, where increase() does not see it, and stay.
func (s *Schedules) perBackup(name, help string) *Counter {
	const labelBackup = "backupName"
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{labelSchedule, labelBackup})
	s.addMetric(vec, metricSet{
		begin:  func(schedule string) { vec.WithLabelValues(schedule, "") },
		remove: func(schedule string) { vec.DeleteLabelValues(schedule, "") },
	})
	return &Counter{s, vec.MustCurryWith(prometheus.Labels{labelBackup: ""})}
}

// Begun counts a backup that begins to run.
func (c *Backups) Begun(b *velerov1.Backup) {
	c.attempts.Inc(b.Labels[velerov1.LabelScheduleName])
}

// Ended counts a backup that got a terminal phase. It is for the process that wrote the phase, once
// that is durable.
func (c *Backups) Ended(b *velerov1.Backup) {
	schedule, status := b.Labels[velerov1.LabelScheduleName], &b.Status
	phase, ok := c.phases[status.Phase]
	if !ok {
		return
	}
	phase.Inc(schedule)
	c.warnings.Add(schedule, float64(max(status.Warnings, 0)))
	c.native.countSnapshots(schedule, status.VolumeSnapshotsAttempted, status.VolumeSnapshotsCompleted)
	c.csi.countSnapshots(schedule, status.CSIVolumeSnapshotsAttempted, status.CSIVolumeSnapshotsCompleted)
	if start, end := status.StartTimestamp, status.CompletionTimestamp; start != nil && end != nil {
		c.duration.observeDuration(schedule, end.Sub(start.Time))
	}
}

func (c *snapshotCounters) countSnapshots(schedule string, begun, taken int) {
	begun, taken = max(begun, 0), max(taken, 0)
	c.attempts.Add(schedule, float64(begun))
	c.successes.Add(schedule, float64(taken))
	c.failures.Add(schedule, float64(max(begun-taken, 0)))
}
