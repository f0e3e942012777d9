package metrics

import "github.com/prometheus/client_golang/prometheus"

// The gauges; those with the prefix velero_ are Velero 1.18's.
var (
	backupsExist     = newDesc("velero_backup_total", "Backups that exist.")
	restoresExist    = newDesc("velero_restore_total", "Restores that exist.")
	lastSuccess      = newDesc("velero_backup_last_successful_timestamp", "When the last Completed backup ended, Unix seconds.", "schedule")
	lastStatus       = newDesc("velero_backup_last_status", "1 if the last backup that ended is Completed, else 0.", "schedule")
	lastItems        = newDesc("velero_backup_items_total", "Objects of the last backup that ended.", "schedule")
	lastErrors       = newDesc("velero_backup_items_errors", "Errors of the last backup that ended.", "schedule")
	lastSize         = newDesc("velero_backup_tarball_size_bytes", "Size of the tarball of the last backup that has one.", "schedule")
	jobs             = newDesc("holdfast_jobs", "Backups and Restores that have not ended, by phase.", "kind", "phase")
	waiting          = newDesc("holdfast_queue_depth", "Backups and Restores that wait for a place or a runner.", "kind")
	oldest           = newDesc("holdfast_queue_oldest_seconds", "Age of the oldest job that waits, 0 if none does.", "kind")
	scheduleCreated  = newDesc("holdfast_schedule_created_timestamp_seconds", "When a Schedule was created, Unix seconds.", "schedule")
	scheduleInterval = newDesc("holdfast_schedule_interval_seconds", "Longest time between two slots of a Schedule that is valid and not paused.", "schedule")
	schedulePaused   = newDesc("holdfast_schedule_paused", "1 if a Schedule is paused, else 0.", "schedule")
	scheduleSkipped  = newDesc("holdfast_schedule_skipped_timestamp_seconds", "When a Schedule last skipped a backup that was due, Unix seconds.", "schedule")

	descriptions = []*prometheus.Desc{
		backupsExist, restoresExist, lastSuccess, lastStatus, lastItems, lastErrors, lastSize, jobs, waiting, oldest,
		scheduleCreated, scheduleInterval, schedulePaused, scheduleSkipped,
	}
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}
