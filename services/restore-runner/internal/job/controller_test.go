package job_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// cleaner counts the restores it was asked to clean.
type cleaner struct {
	cleaned []string
	err     error
}

func (c *cleaner) Clean(_ context.Context, o *velerov1.Restore) error {
	c.cleaned = append(c.cleaned, o.Name)
	return c.err
}

// control is a runner whose controller the test calls.
type control struct {
	*runner
	cleaner *cleaner
}

func newControl(b *bench) *control { return &control{runner: newRunner(b.config), cleaner: &b.cleaner} }

// stopHints ends the delivery of hints.
func (c *control) stopHints() { c.bus.Down(true) }

func (c *control) reconcileRestore(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "velero", Name: "r"}})
	require.NoError(t, err)
	return result
}

func TestUnfinishedRestoresAreAnnouncedUntilTheyEnd(t *testing.T) {
	held := func(holder string) func(*velerov1.Restore) {
		return func(r *velerov1.Restore) {
			r.Status.Phase = velerov1.RestorePhaseInProgress
			_ = claim.Set(r, claim.Claim{Owner: holder, Epoch: 1})
		}
	}
	nothing := func(*velerov1.Restore) {}
	tests := map[string]struct {
		admitted bool
		change   func(*velerov1.Restore)
		hints    int
		again    bool
	}{
		"new and admitted":     {true, nothing, 1, true},
		"new, not admitted":    {false, nothing, 0, true},
		"holder is gone":       {true, held("dead"), 1, true},
		"handed over":          {true, held(""), 1, true},
		"holder lives":         {true, held("alive"), 0, true},
		"ours and not running": {true, held("me"), 1, true},
		"left finalizing":      {false, func(r *velerov1.Restore) { r.Status.Phase = velerov1.RestorePhaseFinalizing }, 1, true},
		"left waiting":         {false, func(r *velerov1.Restore) { r.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations }, 1, true},
		"waiting": {false, func(r *velerov1.Restore) {
			held("")(r)
			r.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations
		}, 0, true},
		"ended": {true, func(r *velerov1.Restore) { r.Status.Phase = velerov1.RestorePhaseCompleted }, 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.createRestore(t, tt.admitted, tt.change)
			c := newControl(b)
			result := c.reconcileRestore(t)
			require.Len(t, c.bus.Sent(), tt.hints)
			require.Equal(t, tt.again, result.RequeueAfter > 0)
		})
	}
	require.Zero(t, newControl(newBench(t)).reconcileRestore(t), "an absent one is nobody's business")
}

// A restore that another server left is not announced to anybody who takes it, or not at all
// without messages.
func TestARestoreThatAnotherServerLeftIsTakenWithoutMessages(t *testing.T) {
	for _, phase := range []velerov1.RestorePhase{velerov1.RestorePhaseInProgress, velerov1.RestorePhaseWaitingForPluginOperations} {
		b := newBench(t)
		b.createLeftRestore(t, phase)
		c := newControl(b)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Serve(ctx) }()
		c.reconcileRestore(t)
		require.Eventually(t, func() bool { return b.getRestore(t).Status.Phase.Terminal() }, time.Minute, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
	}
}

func TestWithoutMessagesTheRunnerLooksItself(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	c := newControl(b)
	c.stopHints()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx) }()
	c.reconcileRestore(t)
	require.Eventually(t, func() bool { return b.getRestore(t).Status.Phase == velerov1.RestorePhaseCompleted }, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

// later is a clock that the test moves on.
type later struct {
	clock.RealClock
	by atomic.Int64
}

func (l *later) Now() time.Time                  { return l.RealClock.Now().Add(time.Duration(l.by.Load())) }
func (l *later) Since(t time.Time) time.Duration { return l.Now().Sub(t) }

// The queue may hold a hint that it never delivers: an admitted restore is begun all the same,
// after a while.
func TestRestoresAnnouncedInVainAreBegun(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	now := &later{}
	b.config.Clock = now
	b.runner = newRunner(b.config)
	b.createRestore(t, true)
	c := newControl(b)
	c.bus.Swallow(true)
	serve := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Serve(ctx) }()
		return func() { cancel(); require.NoError(t, <-done) }
	}
	defer serve()()
	c.reconcileRestore(t)
	now.by.Add(int64(15 * time.Second))
	c.reconcileRestore(t)
	require.Empty(t, b.getRestore(t).Status.Phase, "the hint has its time")
	now.by.Add(int64(15 * time.Second))
	c.reconcileRestore(t)
	require.Len(t, c.bus.Sent(), 3)
	require.Eventually(t, func() bool { return b.getRestore(t).Status.Phase == velerov1.RestorePhaseCompleted }, time.Minute, 10*time.Millisecond)
}

func TestUnannouncedRestoresAreBounded(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	running, most, begun := 0, 0, 0
	full, release := make(chan struct{}), make(chan struct{})
	b.locations.err = objectstore.ErrAccess
	b.locations.failed = func() {
		mu.Lock()
		running++
		most, begun = max(most, running), begun+1
		if begun == 2 {
			close(full)
		}
		mu.Unlock()
		<-release
		mu.Lock()
		running--
		mu.Unlock()
	}
	c := newControl(b)
	c.stopHints()
	names := []string{"r1", "r2", "r3", "r4"}
	for _, name := range names {
		b.createRestore(t, false, func(r *velerov1.Restore) {
			r.Name, r.UID, r.Spec.NamespaceMapping = name, types.UID(name), map[string]string{"a": name}
		})
		require.NoError(t, b.ledger.Admit(t.Context(), ledger.Entry{UID: types.UID(name), Kind: ledger.KindRestore, Namespace: "velero",
			Name: name, Namespaces: []string{name}, Since: time.Now()}, ledger.Limits{}))
		_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "velero", Name: name}})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx) }()
	<-full
	close(release)
	require.Eventually(t, func() bool {
		var list velerov1.RestoreList
		require.NoError(t, b.client.List(t.Context(), &list))
		return !slices.ContainsFunc(list.Items, func(o velerov1.Restore) bool { return !o.Status.Phase.Terminal() })
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, 2, most)
}

func TestDeathOfAHolderStartsTheTakeover(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true, func(r *velerov1.Restore) {
		r.Status.Phase = velerov1.RestorePhaseInProgress
		_ = claim.Set(r, claim.Claim{Owner: "dead", Epoch: 4})
	})
	expired, done := make(chan string, 1), make(chan error, 1)
	b.claims.Died = expired
	c := newControl(b)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- c.Serve(ctx) }()
	expired <- "somebody else"
	expired <- "dead"
	require.Eventually(t, func() bool { return b.getRestore(t).Status.Phase == velerov1.RestorePhaseCompleted }, time.Minute, 10*time.Millisecond)
	held, _, err := claim.Parse(b.getRestore(t))
	require.NoError(t, err)
	require.EqualValues(t, 5, held.Epoch)
	cancel()
	require.NoError(t, <-done)
	require.Empty(t, c.bus.Sent())
}

func TestDeletedRestoresAreCleanedOnceNobodyWritesThem(t *testing.T) {
	b := newBench(t)
	restore := b.createRestore(t, true, func(r *velerov1.Restore) {
		r.Finalizers = []string{velerov1.RestoreFinalizer}
		r.Status.Phase = velerov1.RestorePhaseInProgress
		_ = claim.Set(r, claim.Claim{Owner: "alive", Epoch: 1})
	})
	require.NoError(t, b.client.Delete(t.Context(), restore))
	c := newControl(b)
	require.Positive(t, c.reconcileRestore(t).RequeueAfter)
	require.Empty(t, c.cleaner.cleaned, "its holder lives")

	restore = b.getRestore(t)
	require.NoError(t, claim.Set(restore, claim.Claim{Owner: "dead", Epoch: 1}))
	require.NoError(t, b.client.Update(t.Context(), restore))
	c.cleaner.err = errors.New("bucket away")
	require.Positive(t, c.reconcileRestore(t).RequeueAfter, "tried again")
	c.cleaner.err = nil
	require.Zero(t, c.reconcileRestore(t))
	require.Equal(t, []string{"r", "r"}, c.cleaner.cleaned)
}

// The files of a restore that left objects paused are needed to resume these.
func TestTheFilesOfADeletedRestoreWaitForWhatItPaused(t *testing.T) {
	b := newBench(t)
	now := &later{}
	b.config.Clock = now
	restore := b.createRestore(t, true, func(r *velerov1.Restore) {
		r.Finalizers = []string{velerov1.RestoreFinalizer}
		r.Status.Phase = velerov1.RestorePhaseFailed
		require.NoError(t, mark.SetPaused(r, "default"))
	})
	require.NoError(t, b.client.Delete(t.Context(), restore))
	c := newControl(b)
	require.Positive(t, c.reconcileRestore(t).RequeueAfter)
	require.Empty(t, c.cleaner.cleaned)
	now.by.Add(int64(b.config.StorePatience))
	require.Zero(t, c.reconcileRestore(t), "they do not wait for ever")
	require.Len(t, c.cleaner.cleaned, 1)

	now.by.Store(0)
	restore = b.getRestore(t)
	mark.ClearPaused(restore)
	require.NoError(t, b.client.Update(t.Context(), restore))
	require.Zero(t, c.reconcileRestore(t))
	require.Len(t, c.cleaner.cleaned, 2)
}
