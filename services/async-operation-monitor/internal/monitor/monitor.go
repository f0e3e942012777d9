// Package monitor moves jobs on that wait for operations: Waiting* becomes
// Finalizing* when no operation is left.
package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/kube"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/operations"
)

// Operations finds the operations of a job; operations.Source is one.
type Operations interface {
	OfBackup(ctx context.Context, name string) ([]operations.Operation, error)
	OfRestore(ctx context.Context, name string) ([]operations.Operation, error)
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
	Frequency  time.Duration
	Log        *slog.Logger
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
	if _, waits := afterBackup[b.Status.Phase]; !waits {
		return reconcile.Result{}, nil
	}
	list, err := m.Operations.OfBackup(ctx, b.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if running(list) {
		return reconcile.Result{RequeueAfter: m.Frequency}, nil
	}
	err = kube.Update(ctx, m.Reader, m.Client, b, func(b *velerov1.Backup) error {
		next, waits := afterBackup[b.Status.Phase]
		if !waits {
			return kube.ErrSkip
		}
		b.Status.Phase = next[index(failed(list))]
		b.Status.BackupItemOperationsCompleted, b.Status.BackupItemOperationsFailed = count(list)
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
	if _, waits := afterRestore[r.Status.Phase]; !waits {
		return reconcile.Result{}, nil
	}
	list, err := m.Operations.OfRestore(ctx, r.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if running(list) {
		return reconcile.Result{RequeueAfter: m.Frequency}, nil
	}
	err = kube.Update(ctx, m.Reader, m.Client, r, func(r *velerov1.Restore) error {
		next, waits := afterRestore[r.Status.Phase]
		if !waits {
			return kube.ErrSkip
		}
		r.Status.Phase = next[index(failed(list))]
		r.Status.RestoreItemOperationsCompleted, r.Status.RestoreItemOperationsFailed = count(list)
		return nil
	})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	m.hint(ctx, fabric.WorkRestoreFinalize, "Restore", r)
	return reconcile.Result{}, nil
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

func running(list []operations.Operation) bool {
	return slices.ContainsFunc(list, func(o operations.Operation) bool { return !o.Done() })
}

func failed(list []operations.Operation) bool {
	return slices.ContainsFunc(list, func(o operations.Operation) bool { return o.Status.Phase == operations.PhaseFailed })
}

func index(failed bool) int {
	if failed {
		return 1
	}
	return 0
}

func count(list []operations.Operation) (completed, failed int) {
	for _, o := range list {
		switch o.Status.Phase {
		case operations.PhaseCompleted:
			completed++
		case operations.PhaseFailed:
			failed++
		}
	}
	return completed, failed
}
