// Package monitor moves jobs on that wait for operations: Waiting* becomes Finalizing*. The runners
// of this version begin no operations, so what waits was left by another server, and nothing here
// can ask about its operations.
//
// No message is sent: the runners watch the phase, and publish the hint for what is to be finalized
// themselves.
package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// Operations finds the operations of a job; operations.Source is one.
type Operations interface {
	OfBackup(ctx context.Context, name string) ([]itemoperation.Operation, error)
	OfRestore(ctx context.Context, name string) ([]itemoperation.Operation, error)
}

// Monitor reconciles Backups and Restores. Safe for concurrent use, and so are several replicas:
// the write checks the phase.
type Monitor struct {
	Reader     client.Reader // uncached
	Client     client.Client
	Operations Operations
	// Frequency is the pause before a job is looked at again whose operations could not be read.
	Frequency time.Duration
	Clock     clock.PassiveClock
	Log       *slog.Logger
}

// Setup adds the controllers to the manager.
func (m *Monitor) Setup(mgr ctrl.Manager) error {
	for name, c := range map[string]struct {
		kind client.Object
		do   reconcile.Func
	}{
		"backup":  {&velerov1.Backup{}, m.Backup},
		"restore": {&velerov1.Restore{}, m.Restore},
	} {
		if err := ctrl.NewControllerManagedBy(mgr).Named("async-operation-monitor-" + name).For(c.kind).Complete(c.do); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	return nil
}

// after gives the phase that follows, without and with a failure; those of restores have the same
// names.
var after = map[velerov1.BackupPhase][2]velerov1.BackupPhase{
	velerov1.BackupPhaseWaitingForPluginOperations: {
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
	},
	velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: {
		velerov1.BackupPhaseFinalizingPartiallyFailed, velerov1.BackupPhaseFinalizingPartiallyFailed,
	},
}

// status is what the monitor reads and writes of a job.
type status struct {
	phase             *velerov1.BackupPhase
	started           *metav1.Time
	timeout           time.Duration
	completed, failed *int
}

func ofBackup(b *velerov1.Backup) status {
	s := &b.Status
	return status{&s.Phase, s.StartTimestamp, b.Spec.ItemOperationTimeout.Duration, &s.BackupItemOperationsCompleted, &s.BackupItemOperationsFailed}
}

func ofRestore(r *velerov1.Restore) status {
	s := &r.Status
	phase := (*velerov1.BackupPhase)(&s.Phase)
	return status{phase, s.StartTimestamp, r.Spec.ItemOperationTimeout.Duration, &s.RestoreItemOperationsCompleted, &s.RestoreItemOperationsFailed}
}

// Backup reconciles one Backup.
func (m *Monitor) Backup(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return move(ctx, m, req, &velerov1.Backup{}, kind[*velerov1.Backup]{
		name: "Backup", status: ofBackup, operations: m.Operations.OfBackup,
		moved: func() { failpoint.Hit("async-operation-monitor/backup-moved-on") },
	})
}

// Restore reconciles one Restore.
func (m *Monitor) Restore(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return move(ctx, m, req, &velerov1.Restore{}, kind[*velerov1.Restore]{
		name: "Restore", status: ofRestore, operations: m.Operations.OfRestore,
		moved: func() { failpoint.Hit("async-operation-monitor/restore-moved-on") },
	})
}

// kind is what differs between backups and restores.
type kind[T client.Object] struct {
	name       string
	status     func(T) status
	operations func(ctx context.Context, name string) ([]itemoperation.Operation, error)
	// moved is called once the phase is written.
	moved func()
}

// move moves a job on that waits. It is read into obj.
func move[T client.Object](ctx context.Context, m *Monitor, req reconcile.Request, obj T, k kind[T]) (reconcile.Result, error) {
	if err := m.Reader.Get(ctx, req.NamespacedName, obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, waits := after[*k.status(obj).phase]; !waits || obj.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	list, err := k.operations(ctx, obj.GetName())
	if err != nil && m.holds(obj, err, k.status(obj)) {
		return reconcile.Result{RequeueAfter: m.Frequency}, nil
	}
	failing := err != nil
	err = kube.Update(ctx, m.Reader, m.Client, obj, func(obj T) error {
		now := k.status(obj)
		next, waits := after[*now.phase]
		if !waits {
			return kube.ErrSkip
		}
		*now.phase = next[index(failing || failed(list))]
		if !failing {
			*now.completed, *now.failed = count(list)
		}
		return nil
	})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	k.moved()
	m.Log.Info("no operation is left", "kind", k.name, "name", obj.GetName())
	return reconcile.Result{}, nil
}

// defaultTimeout is that of jobs that name none (Velero 1.18).
const defaultTimeout = 4 * time.Hour

// holds reports whether a job whose operations cannot be read waits for another try: not when they
// never will be, when it was asked to stop, or when its operations had the time that it gives them.
func (m *Monitor) holds(obj client.Object, err error, s status) bool {
	since := s.started
	if since == nil {
		created := obj.GetCreationTimestamp()
		since = &created
	}
	_, cancelled := cancel.Requested(obj)
	over := !m.Clock.Now().Before(since.Add(cmp.Or(s.timeout, defaultTimeout)))
	gone := errors.Is(err, errgrpc.ErrCorrupt) || errors.Is(err, errgrpc.ErrNotFound) || apierrors.IsNotFound(err)
	holds := !cancelled && !over && !gone
	m.Log.Warn("operations of a job not read", "name", obj.GetName(), "waits", holds, "error", err)
	return holds
}

// failed reports whether an operation has failed, or counts as that since it has not ended.
func failed(list []itemoperation.Operation) bool {
	return slices.ContainsFunc(list, func(o itemoperation.Operation) bool { return o.Status.Phase != itemoperation.PhaseCompleted })
}

func index(failed bool) int {
	if failed {
		return 1
	}
	return 0
}

func count(list []itemoperation.Operation) (completed, failed int) {
	for i := range list {
		if list[i].Status.Phase == itemoperation.PhaseCompleted {
			completed++
		} else {
			failed++
		}
	}
	return completed, failed
}
