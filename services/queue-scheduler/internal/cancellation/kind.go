package cancellation

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// jobKind is how Backups differ from Restores.
type jobKind[T client.Object] struct {
	name  string
	stage func(T) mark.CancelStage
	phase func(T) string
	// cancelled reports whether an ended job ended by a request.
	cancelled func(T) bool
	// fail ends a job that no process works on; ttl is that of backups that name none.
	fail func(o T, reason string, now metav1.Time, ttl time.Duration)
	// waits reports a job whose operations have not ended.
	waits func(T) bool
	// finalize makes a job that waits for operations one that finalizes.
	finalize func(T)
	// runner is the service that ends jobs of this kind.
	runner string
}

// endRequested makes a job that was asked to stop Failed; false when no caller asked.
func (k *jobKind[T]) endRequested(o T, now metav1.Time, ttl time.Duration) bool {
	r, asked := mark.CancelRequested(o)
	if asked {
		k.fail(o, r.Reason(), now, ttl)
	}
	return asked
}

var backups = &jobKind[*velerov1.Backup]{
	name: "Backup", stage: mark.BackupStage, runner: "backup-runner",
	waits: func(b *velerov1.Backup) bool {
		p := b.Status.Phase
		return p == velerov1.BackupPhaseWaitingForPluginOperations || p == velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	},
	finalize: func(b *velerov1.Backup) {
		switch b.Status.Phase {
		case velerov1.BackupPhaseWaitingForPluginOperations:
			b.Status.Phase = velerov1.BackupPhaseFinalizing
		case velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed:
			b.Status.Phase = velerov1.BackupPhaseFinalizingPartiallyFailed
		}
	},
	phase: func(b *velerov1.Backup) string { return string(b.Status.Phase) },
	cancelled: func(b *velerov1.Backup) bool {
		return b.Status.Phase == velerov1.BackupPhaseFailed && mark.IsCancelReason(b.Status.FailureReason)
	},
	fail: func(b *velerov1.Backup, reason string, now metav1.Time, ttl time.Duration) {
		s := &b.Status
		s.Phase, s.FailureReason, s.CompletionTimestamp, s.QueuePosition = velerov1.BackupPhaseFailed, reason, &now, 0
		if s.Expiration == nil { // it was not admitted
			s.Expiration = validate.ExpirationAt(now.Time, cmp.Or(b.Spec.TTL.Duration, ttl))
		}
	},
}

var restores = &jobKind[*velerov1.Restore]{
	name: "Restore", stage: mark.RestoreStage, runner: "restore-runner",
	waits: func(r *velerov1.Restore) bool {
		p := r.Status.Phase
		return p == velerov1.RestorePhaseWaitingForPluginOperations || p == velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed
	},
	finalize: func(r *velerov1.Restore) {
		switch r.Status.Phase {
		case velerov1.RestorePhaseWaitingForPluginOperations:
			r.Status.Phase = velerov1.RestorePhaseFinalizing
		case velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed:
			r.Status.Phase = velerov1.RestorePhaseFinalizingPartiallyFailed
		}
	},
	phase: func(r *velerov1.Restore) string { return string(r.Status.Phase) },
	cancelled: func(r *velerov1.Restore) bool {
		return r.Status.Phase == velerov1.RestorePhaseFailed && mark.IsCancelReason(r.Status.FailureReason)
	},
	fail: func(r *velerov1.Restore, reason string, now metav1.Time, _ time.Duration) {
		s := &r.Status
		s.Phase, s.FailureReason, s.CompletionTimestamp = velerov1.RestorePhaseFailed, reason, &now
	},
}
