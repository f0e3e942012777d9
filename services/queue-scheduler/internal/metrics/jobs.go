package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Phases in which a job has not ended; all are shown, so that a series does not end with the last
// job in it.
var (
	backupPhases = []velerov1.BackupPhase{
		velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
	}
	restorePhases = []velerov1.RestorePhase{
		velerov1.RestorePhaseNew, velerov1.RestorePhaseInProgress,
		velerov1.RestorePhaseWaitingForPluginOperations, velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.RestorePhaseFinalizing, velerov1.RestorePhaseFinalizingPartiallyFailed,
	}
)

// queueGauge is how many jobs wait, and for how long.
type queueGauge struct {
	depth  int
	oldest time.Duration
}

func (q *queueGauge) addJob(age time.Duration) {
	q.depth++
	q.oldest = max(q.oldest, age)
}

func (q *queueGauge) sendMetrics(to chan<- prometheus.Metric, kind string) {
	sendGauge(to, waiting, float64(q.depth), kind)
	sendGauge(to, oldest, q.oldest.Seconds(), kind)
}

// showJobs shows what waits and what runs.
func (f *foundJobs) showJobs(to chan<- prometheus.Metric) {
	var queued queueGauge
	backups := map[velerov1.BackupPhase]int{}
	for i := range f.backups.Items {
		b := &f.backups.Items[i]
		phase := b.Status.Phase
		if phase.IsNew() {
			phase = velerov1.BackupPhaseNew
		}
		backups[phase]++
		if phase == velerov1.BackupPhaseNew || phase == velerov1.BackupPhaseQueued || phase == velerov1.BackupPhaseReadyToStart {
			queued.addJob(f.now.Sub(b.CreationTimestamp.Time))
		}
	}
	for _, phase := range backupPhases {
		sendGauge(to, jobs, float64(backups[phase]), "Backup", string(phase))
	}
	queued.sendMetrics(to, "Backup")

	queued = queueGauge{}
	restores := map[velerov1.RestorePhase]int{}
	for i := range f.restores.Items {
		r := &f.restores.Items[i]
		phase := r.Status.Phase
		if phase.IsNew() {
			phase = velerov1.RestorePhaseNew
			queued.addJob(f.now.Sub(r.CreationTimestamp.Time))
		}
		restores[phase]++
	}
	for _, phase := range restorePhases {
		sendGauge(to, jobs, float64(restores[phase]), "Restore", string(phase))
	}
	queued.sendMetrics(to, "Restore")
}
