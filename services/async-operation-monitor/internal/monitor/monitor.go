// Package monitor moves jobs on that wait for operations: Waiting* becomes
// Finalizing*. The runners of this version begin no operations, so what waits was
// left by another server, and nothing here can ask about its operations.
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
	"github.com/holdfast-io/holdfast/pkg/cancel"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/grpcerr"
	"github.com/holdfast-io/holdfast/pkg/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// Operations finds the operations of a job; operations.Source is one.
type Operations interface {
	OfBackup(ctx context.Context, name string) ([]itemoperation.Operation, error)
	OfRestore(ctx context.Context, name string) ([]itemoperation.Operation, error)
}

// Publisher sends hints; fabric.Client is one.
type Publisher interface {
	Publish(ctx context.Context, what fabric.What, hint *workv1.Hint) error
}

// Monitor reconciles Backups and Restores. Safe for concurrent use, and so are
// several replicas: the write checks the phase.
type Monitor struct {
	Reader     client.Reader // uncached
	Client     client.Client
	Operations Operations
	Publisher  Publisher
	// Frequency is the pause before a job is looked at again whose operations could
	// not be read.
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

// afterBackup and afterRestore give the phase that follows, without and with a
// failure.
var (
	afterBackup = map[velerov1.BackupPhase][2]velerov1.BackupPhase{
		velerov1.BackupPhaseWaitingForPluginOperations: {
			velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed,
		},
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: {
			velerov1.BackupPhaseFinalizingPartiallyFailed, velerov1.BackupPhaseFinalizingPartiallyFailed,
		},
	}
	afterRestore = map[velerov1.RestorePhase][2]velerov1.RestorePhase{
		velerov1.RestorePhaseWaitingForPluginOperations: {
			velerov1.RestorePhaseFinalizing, velerov1.RestorePhaseFinalizingPartiallyFailed,
		},
		velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed: {
			velerov1.RestorePhaseFinalizingPartiallyFailed, velerov1.RestorePhaseFinalizingPartiallyFailed,
		},
	}
)

// Backup reconciles one Backup.
func (m *Monitor) Backup(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	b := &velerov1.Backup{}
	if err := m.Reader.Get(ctx, req.NamespacedName, b); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, waits := afterBackup[b.Status.Phase]; !waits || b.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	list, err := m.Operations.OfBackup(ctx, b.Name)
	if err != nil && m.holds(b, err, b.Status.StartTimestamp, b.Spec.ItemOperationTimeout) {
		return reconcile.Result{RequeueAfter: m.Frequency}, nil
	}
	failing := err != nil
	err = kube.Update(ctx, m.Reader, m.Client, b, func(b *velerov1.Backup) error {
		next, waits := afterBackup[b.Status.Phase]
		if !waits {
			return kube.ErrSkip
		}
		b.Status.Phase = next[index(failing || failed(list))]
		if !failing {
			b.Status.BackupItemOperationsCompleted, b.Status.BackupItemOperationsFailed = count(list)
		}
		return nil
	})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	m.hint(ctx, fabric.WorkBackupFinalize, "Backup", b)
	return reconcile.Result{}, nil
}

// Restore reconciles one Restore.
func (m *Monitor) Restore(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r := &velerov1.Restore{}
	if err := m.Reader.Get(ctx, req.NamespacedName, r); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, waits := afterRestore[r.Status.Phase]; !waits || r.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	list, err := m.Operations.OfRestore(ctx, r.Name)
	if err != nil && m.holds(r, err, r.Status.StartTimestamp, r.Spec.ItemOperationTimeout) {
		return reconcile.Result{RequeueAfter: m.Frequency}, nil
	}
	failing := err != nil
	err = kube.Update(ctx, m.Reader, m.Client, r, func(r *velerov1.Restore) error {
		next, waits := afterRestore[r.Status.Phase]
		if !waits {
			return kube.ErrSkip
		}
		r.Status.Phase = next[index(failing || failed(list))]
		if !failing {
			r.Status.RestoreItemOperationsCompleted, r.Status.RestoreItemOperationsFailed = count(list)
		}
		return nil
	})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	m.hint(ctx, fabric.WorkRestoreFinalize, "Restore", r)
	return reconcile.Result{}, nil
}

// defaultTimeout is that of jobs that name none (Velero 1.18).
const defaultTimeout = 4 * time.Hour

// holds tells whether a job whose operations cannot be read waits for another try:
// not when they never will be, when it was asked to stop, or when its operations
// had the time that it gives them.
func (m *Monitor) holds(obj client.Object, err error, since *metav1.Time, timeout metav1.Duration) bool {
	if since == nil {
		created := obj.GetCreationTimestamp()
		since = &created
	}
	_, cancelled := cancel.Requested(obj)
	over := !m.Clock.Now().Before(since.Add(cmp.Or(timeout.Duration, defaultTimeout)))
	gone := errors.Is(err, grpcerr.ErrCorrupt) || errors.Is(err, grpcerr.ErrNotFound) || apierrors.IsNotFound(err)
	holds := !cancelled && !over && !gone
	m.Log.Warn("operations of a job not read", "name", obj.GetName(), "waits", holds, "error", err)
	return holds
}

// hint tells the runners; they find the phase by themselves when it is lost.
func (m *Monitor) hint(ctx context.Context, what fabric.What, kind string, obj client.Object) {
	m.Log.Info("no operation is left", "kind", kind, "name", obj.GetName())
	err := m.Publisher.Publish(fabric.WithTrace(ctx, obj), what, &workv1.Hint{
		Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), Uid: string(obj.GetUID()),
	})
	if err != nil {
		m.Log.Warn("hint not published", "kind", kind, "name", obj.GetName(), "error", err)
	}
}

// failed tells whether an operation has failed, or counts as that since it has not ended.
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
