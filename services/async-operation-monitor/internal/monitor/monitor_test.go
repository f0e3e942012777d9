package monitor_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/kube"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/operations"
)

type list struct {
	phases []string
	err    error
}

func (l list) OfBackup(context.Context, string) ([]operations.Operation, error) {
	var out []operations.Operation
	for _, p := range l.phases {
		out = append(out, operations.Operation{Status: operations.Status{Phase: p}})
	}
	return out, l.err
}

func (l list) OfRestore(ctx context.Context, name string) ([]operations.Operation, error) {
	return l.OfBackup(ctx, name)
}

type wire struct{ sent []fabric.What }

func (w *wire) Publish(_ context.Context, what fabric.What, _ *workv1.Hint) error {
	w.sent = append(w.sent, what)
	return errors.New("a lost hint is no failure")
}

func TestJobsMoveOnWhenNothingIsLeft(t *testing.T) {
	const waiting, waitingPF = velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	for name, tc := range map[string]struct {
		phase, want velerov1.BackupPhase
		list        []string
		again       bool
	}{
		"none":             {waiting, velerov1.BackupPhaseFinalizing, nil, false},
		"all completed":    {waiting, velerov1.BackupPhaseFinalizing, []string{"Completed", "Completed"}, false},
		"one failed":       {waiting, velerov1.BackupPhaseFinalizingPartiallyFailed, []string{"Completed", "Failed"}, false},
		"failed before":    {waitingPF, velerov1.BackupPhaseFinalizingPartiallyFailed, []string{"Completed"}, false},
		"one running":      {waiting, waiting, []string{"Failed", "InProgress"}, true},
		"one not begun":    {waitingPF, waitingPF, []string{"New"}, true},
		"in another phase": {velerov1.BackupPhaseInProgress, velerov1.BackupPhaseInProgress, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "velero", Name: "x", UID: "u"}
			b, r := &velerov1.Backup{ObjectMeta: meta}, &velerov1.Restore{ObjectMeta: meta}
			b.Status.Phase, r.Status.Phase = tc.phase, velerov1.RestorePhase(tc.phase)
			c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(b, r).Build()
			w := &wire{}
			m := &monitor.Monitor{
				Reader: c, Client: c, Operations: list{phases: tc.list}, Publisher: w, Frequency: time.Second, Log: slog.New(slog.DiscardHandler),
			}
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
			for _, do := range []reconcile.Func{m.Backup, m.Restore} {
				result, err := do(t.Context(), request)
				require.NoError(t, err)
				require.Equal(t, tc.again, result.RequeueAfter == time.Second)
			}
			require.NoError(t, c.Get(t.Context(), request.NamespacedName, b))
			require.NoError(t, c.Get(t.Context(), request.NamespacedName, r))
			require.Equal(t, tc.want, b.Status.Phase)
			require.Equal(t, velerov1.RestorePhase(tc.want), r.Status.Phase)
			if tc.want == tc.phase {
				require.Empty(t, w.sent)
				return
			}
			require.Equal(t, []fabric.What{fabric.WorkBackupFinalize, fabric.WorkRestoreFinalize}, w.sent)
		})
	}
}

func TestUnreadableOperationsHoldTheJob(t *testing.T) {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "x"}}
	b.Status.Phase = velerov1.BackupPhaseWaitingForPluginOperations
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(b).Build()
	boom := errors.New("boom")
	m := &monitor.Monitor{Reader: c, Client: c, Operations: list{err: boom}, Publisher: &wire{}, Log: slog.New(slog.DiscardHandler)}
	_, err := m.Backup(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
	require.ErrorIs(t, err, boom)
	_, err = m.Restore(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "velero", Name: "gone"}})
	require.NoError(t, err)
}
