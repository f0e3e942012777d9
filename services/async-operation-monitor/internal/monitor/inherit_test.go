package monitor_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

func ptr[T any](v T) *T { return &v }

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newMonitor returns a monitor without a bus, which polls when it is shown an object.
func newMonitor(t *testing.T, l list, objects ...client.Object) (*monitor.Monitor, client.Client) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
	down := newBus()
	down.set(true, false)
	poller := poll.New(t.Context(), poll.Config{Actions: &plugins{}, Metrics: silence{}, Clock: clock.RealClock{}, Frequency: time.Second, Grace: grace})
	t.Cleanup(poller.Close)
	return monitor.New(monitor.Config{
		Reader: c, Client: c, Namespace: namespace, Files: files{list: l, store: memstore.New()}, Actions: here{}, Poller: poller, Bus: down, Events: &events{},
		Frequency: time.Second, Clock: clocktesting.NewFakePassiveClock(now), Log: slog.New(slog.DiscardHandler),
	}), c
}

const (
	waiting   = velerov1.BackupPhaseWaitingForPluginOperations
	waitingPF = velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	finalPF   = velerov1.BackupPhaseFinalizingPartiallyFailed
)

// Operations that another server began are never polled: they count as failed, and the job does not
// wait for them.
func TestJobsMoveOnWhateverTheirOperationsDo(t *testing.T) {
	for name, tc := range map[string]struct {
		phase, want       velerov1.BackupPhase
		list              []string
		completed, failed int
	}{
		"none":          {phase: waiting, want: velerov1.BackupPhaseFinalizing},
		"all completed": {phase: waiting, want: velerov1.BackupPhaseFinalizing, list: []string{"Completed", "Completed"}, completed: 2},
		"one failed":    {phase: waiting, want: finalPF, list: []string{"Completed", "Failed"}, completed: 1, failed: 1},
		"failed before": {phase: waitingPF, want: finalPF, list: []string{"Completed"}, completed: 1},
		"one running":   {phase: waiting, want: finalPF, list: []string{"Completed", "InProgress"}, completed: 1, failed: 1},
		"one not begun": {phase: waitingPF, want: finalPF, list: []string{"New"}, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "velero", Name: "x", UID: "u"}
			b, r := &velerov1.Backup{ObjectMeta: meta}, &velerov1.Restore{ObjectMeta: meta}
			b.Status.Phase, r.Status.Phase = tc.phase, velerov1.RestorePhase(tc.phase)
			m, c := newMonitor(t, list{phases: tc.list}, b, r)
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
			for _, do := range []reconcile.Func{m.Backup, m.Restore} {
				result, err := do(t.Context(), request)
				require.NoError(t, err)
				require.Zero(t, result)
			}
			require.NoError(t, c.Get(t.Context(), request.NamespacedName, b))
			require.NoError(t, c.Get(t.Context(), request.NamespacedName, r))
			require.Equal(t, tc.want, b.Status.Phase)
			require.Equal(t, velerov1.RestorePhase(tc.want), r.Status.Phase)
			require.Equal(t, []int{tc.completed, tc.failed}, []int{b.Status.BackupItemOperationsCompleted, b.Status.BackupItemOperationsFailed})
			require.Equal(t, []int{tc.completed, tc.failed}, []int{r.Status.RestoreItemOperationsCompleted, r.Status.RestoreItemOperationsFailed})
		})
	}
}

// Every phase but the two that wait is another service's.
func TestJobsInOtherPhasesAreLeftAlone(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseFailedValidation, velerov1.BackupPhaseInProgress,
		velerov1.BackupPhaseFinalizing, finalPF, velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed, velerov1.BackupPhaseDeleting,
	} {
		meta := metav1.ObjectMeta{Namespace: "velero", Name: "x", UID: "u"}
		b, r := &velerov1.Backup{ObjectMeta: meta}, &velerov1.Restore{ObjectMeta: meta}
		b.Status.Phase, r.Status.Phase = phase, velerov1.RestorePhase(phase)
		m, c := newMonitor(t, list{phases: []string{"New"}}, b, r)
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
		for _, do := range []reconcile.Func{m.Backup, m.Restore} {
			_, err := do(t.Context(), request)
			require.NoError(t, err)
		}
		require.NoError(t, c.Get(t.Context(), request.NamespacedName, b))
		require.NoError(t, c.Get(t.Context(), request.NamespacedName, r))
		require.Equal(t, phase, b.Status.Phase)
		require.Equal(t, velerov1.RestorePhase(phase), r.Status.Phase)
	}
}

// A job whose operations cannot be read stands still indefinitely when the location is gone or the
// file damaged, and cannot be cancelled. It waits for a bucket that is away until
// itemOperationTimeout.
func TestUnreadableOperationsHoldTheJobForABoundedTime(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		err     error
		begun   time.Duration // ago
		timeout time.Duration
		cancel  bool
		holds   bool
	}{
		"away":                       {err: boom, begun: time.Hour, holds: true},
		"away for the default time":  {err: boom, begun: 4 * time.Hour},
		"away for the time it gives": {err: boom, begun: time.Minute, timeout: time.Minute},
		"away and cancelled":         {err: boom, cancel: true},
		"damaged":                    {err: fmt.Errorf("read: %w", errgrpc.ErrCorrupt)},
		"no location":                {err: apierrors.NewNotFound(schema.GroupResource{}, "default")},
		"no backup":                  {err: fmt.Errorf("backup: %w", errgrpc.ErrNotFound)},
	} {
		t.Run(name, func(t *testing.T) {
			meta := metav1.ObjectMeta{Namespace: "velero", Name: "x", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-tc.begun))}
			if tc.cancel {
				meta.Annotations = map[string]string{holdfast.AnnotationCancel: "alice"}
			}
			b, r := &velerov1.Backup{ObjectMeta: meta}, &velerov1.Restore{ObjectMeta: meta}
			b.Status.Phase, r.Status.Phase = waiting, velerov1.RestorePhase(waiting)
			b.Spec.ItemOperationTimeout.Duration, r.Spec.ItemOperationTimeout.Duration = tc.timeout, tc.timeout
			r.Status.StartTimestamp = ptr(metav1.NewTime(now.Add(-tc.begun)))
			m, c := newMonitor(t, list{err: tc.err}, b, r)
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
			want := finalPF
			if tc.holds {
				want = waiting
			}
			for _, do := range []reconcile.Func{m.Backup, m.Restore} {
				result, err := do(t.Context(), request)
				require.NoError(t, err)
				require.Equal(t, tc.holds, result.RequeueAfter == time.Second)
			}
			require.NoError(t, c.Get(t.Context(), request.NamespacedName, b))
			require.NoError(t, c.Get(t.Context(), request.NamespacedName, r))
			require.Equal(t, want, b.Status.Phase)
			require.Equal(t, velerov1.RestorePhase(want), r.Status.Phase)
		})
	}
	m, _ := newMonitor(t, list{})
	_, err := m.Restore(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "velero", Name: "gone"}})
	require.NoError(t, err)
}
