package monitor

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// nextPhases gives the phase that follows, without and with a failure; those of restores have the same
// names.
var nextPhases = map[velerov1.BackupPhase][2]velerov1.BackupPhase{
	velerov1.BackupPhaseWaitingForPluginOperations: {
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
	},
	velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: {
		velerov1.BackupPhaseFinalizingPartiallyFailed, velerov1.BackupPhaseFinalizingPartiallyFailed,
	},
}

// jobStatus is what the monitor reads and writes of a job.
type jobStatus struct {
	phase             *velerov1.BackupPhase
	started           *metav1.Time
	timeout           time.Duration
	completed, failed *int
}

// jobKind is what differs between backups and restores.
type jobKind[T client.Object] struct {
	name   string // operation.KindBackup or KindRestore
	new    func() T
	status func(T) jobStatus
	// cancelled is the reason why the operations of a job have to end that is to stop.
	cancelled string
	// deleted is the reason for a job whose object is gone.
	deleted string
	// ended is the reason for a job that failed while operations were open.
	ended string
	// moved is called once the phase is written.
	moved func()
}

var backups = &jobKind[*velerov1.Backup]{
	name: operation.KindBackup, new: func() *velerov1.Backup { return &velerov1.Backup{} },
	status: func(b *velerov1.Backup) jobStatus {
		s := &b.Status
		return jobStatus{&s.Phase, s.StartTimestamp, b.Spec.ItemOperationTimeout.Duration, &s.BackupItemOperationsCompleted, &s.BackupItemOperationsFailed}
	},
	cancelled: "the backup is cancelled", deleted: "the backup was deleted", ended: "the backup has ended",
	moved: func() { failpoint.Hit("async-operation-monitor/backup-moved-on") },
}

var restores = &jobKind[*velerov1.Restore]{
	name: operation.KindRestore, new: func() *velerov1.Restore { return &velerov1.Restore{} },
	status: func(r *velerov1.Restore) jobStatus {
		s := &r.Status
		phase := (*velerov1.BackupPhase)(&s.Phase)
		return jobStatus{phase, s.StartTimestamp, r.Spec.ItemOperationTimeout.Duration, &s.RestoreItemOperationsCompleted, &s.RestoreItemOperationsFailed}
	},
	cancelled: "the restore is cancelled", deleted: "the restore was deleted", ended: "the restore has ended",
	moved: func() { failpoint.Hit("async-operation-monitor/restore-moved-on") },
}

// hasFailed reports whether a job is in the one ended phase that is also written over open operations. Each
// other phase follows the ends of all operations, or leaves the open ones to a runner.
func (k *jobKind[T]) hasFailed(obj T) bool { return *k.status(obj).phase == velerov1.BackupPhaseFailed }

// isWaiting reports whether a job waits for operations. One that another server left waiting is ended by
// a runner.
func (k *jobKind[T]) isWaiting(obj T) bool {
	_, waits := nextPhases[*k.status(obj).phase]
	return waits && !mark.IsForeign(obj)
}

// defaultTimeout is that of jobs that name none (Velero 1.18); queue-scheduler gives every job one
// that it admits.
const defaultTimeout = 4 * time.Hour

// operationTimeout is how long the operations of a job may take.
func operationTimeout(s jobStatus) time.Duration { return cmp.Or(s.timeout, defaultTimeout) }

// hasTimedOut reports whether the time that a job gives its operations, and grace, have passed since it
// began.
func (m *Monitor) hasTimedOut(obj client.Object, s jobStatus, grace time.Duration) bool {
	since := s.started
	if since == nil {
		created := obj.GetCreationTimestamp()
		since = &created
	}
	return !m.Clock.Now().Before(since.Add(operationTimeout(s) + grace))
}
