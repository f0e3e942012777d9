package job_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
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

// later is a clock that the test moves on.
type later struct {
	clock.RealClock
	by atomic.Int64
}

func (l *later) Now() time.Time                  { return l.RealClock.Now().Add(time.Duration(l.by.Load())) }
func (l *later) Since(t time.Time) time.Duration { return l.Now().Sub(t) }

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
