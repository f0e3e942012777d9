package job_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// aheadClock is the real clock, as far ahead as the test says.
type aheadClock struct {
	clock.RealClock
	by atomic.Int64
}

func (c *aheadClock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func (c *aheadClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Nothing but `InProgress` said that a restore waits, and its log did not mention it afterwards.
func TestARestoreTellsWhatItWaitsFor(t *testing.T) {
	clk, events := &aheadClock{}, &jobtest.Events{}
	b, _ := waitingForWeb(t, func(*bench) { clk.by.Store(int64(10 * time.Second)) })
	b.config.Clock, b.config.Events = clk, events
	b.runner = newRunner(b.config)
	ended := make(chan error, 1)
	go func() { ended <- b.runner.Run(t.Context(), "r", "uid-r") }()
	const what = "pods a/web: hooks wait for container main: nothing is known of it, the pod's phase (since "
	require.Eventually(t, func() bool {
		waits := mark.WaitsOf(b.getRestore(t))
		return strings.HasPrefix(strings.Join(waits.Texts(), "\n"), what)
	}, time.Minute, 10*time.Millisecond)
	b.startContainer("web")
	require.NoError(t, <-ended)
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase)
	require.Empty(t, mark.WaitsOf(r), "an ended restore waits for nothing")
	require.Equal(t, 1, strings.Count(events.Text(), "Normal Waiting: "+what))
	log := b.readGzip(t, layout.RestoreLog("r"))
	require.Equal(t, 1, strings.Count(log, "hooks wait for container main"), log)
}

// awaitIdle advances the clock until the restore is idle.
func (b *bench) awaitIdle(t *testing.T, clk *aheadClock) {
	t.Helper()
	require.Eventually(t, func() bool {
		clk.by.Add(int64(time.Second))
		return mark.WaitsOf(b.getRestore(t)).Idle
	}, time.Minute, 20*time.Millisecond)
}

// A restore whose Pod never started kept its place, and all others waited behind it.
func TestARestoreThatWaitsForAPodGivesUpItsPlace(t *testing.T) {
	clk := &aheadClock{}
	b, _ := waitingForWeb(t, func(*bench) {})
	b.config.Clock, b.config.Concurrency = clk, 1
	b.runner = newRunner(b.config)
	ended := make(chan error, 1)
	go func() { ended <- b.runner.Run(t.Context(), "r", "uid-r") }()
	b.awaitIdle(t, clk)
	require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
	require.True(t, mark.WaitsOf(b.getRestore(t)).SharedDone)

	other := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "other", UID: "uid-other"}, Spec: velerov1.RestoreSpec{BackupName: "b"}}
	require.NoError(t, b.client.Create(t.Context(), other))
	require.NoError(t, b.ledger.Readmit(t.Context(), ledger.Entry{UID: other.UID, Kind: ledger.KindRestore, Namespace: "velero", Name: "other", Namespaces: []string{"a"}}))
	require.NoError(t, b.runner.Run(t.Context(), "other", "uid-other"))
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	require.Equal(t, velerov1.RestorePhaseCompleted, other.Status.Phase, "there is one place")

	b.startContainer("web")
	require.NoError(t, <-ended)
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase)
	require.NotContains(t, r.Annotations, holdfast.AnnotationWaits)
}

// The next holder of an idle restore keeps it idle, also before it has read what is owed, and runs the hooks.
func TestAnIdleRestoreStaysIdleOverATakeover(t *testing.T) {
	clk := &aheadClock{}
	b, s := waitingForWeb(t, func(*bench) {})
	b.config.Clock = clk
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	first := newRunner(b.config)
	go func() { ended <- first.Run(ctx, "r", "uid-r") }()
	b.awaitIdle(t, clk)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.True(t, mark.WaitsOf(b.getRestore(t)).Idle)

	next := b.config
	next.Claims, next.Concurrency = &jobtest.Holder{Name: "next"}, 1
	var lost atomic.Bool
	next.Client = interceptor.NewClient(b.client.(client.WithWatch), interceptor.Funcs{Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		err := w.Patch(ctx, obj, patch, opts...)
		if r, ok := obj.(*velerov1.Restore); ok && r.Status.Phase == velerov1.RestorePhaseInProgress && !mark.WaitsOf(r).Idle {
			lost.Store(true)
		}
		return err
	}})
	taken := newRunner(next)
	go func() { ended <- taken.Run(t.Context(), "r", "uid-r") }()
	require.Eventually(t, func() bool { return len(mark.WaitsOf(b.getRestore(t)).For) > 0 }, time.Minute, 20*time.Millisecond)
	b.startContainer("web")
	require.NoError(t, <-ended)
	require.False(t, lost.Load())
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
	require.Equal(t, map[string]int{"db first": 1, "db second": 1, "web load": 1}, s.ranCommands())
}
