package server

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/grpcerr"
	"github.com/holdfast-io/holdfast/pkg/kube"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jobs are the restores worked on here.
type jobs map[types.UID]outcome.Counts

func (j jobs) Running(uid types.UID) (outcome.Counts, bool) {
	c, ok := j[uid]
	return c, ok
}

func object(t *testing.T) (client.Client, *velerov1.Restore) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	start := metav1.NewTime(time.Unix(1_700_000_000, 0))
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "u"}}
	r.Status = velerov1.RestoreStatus{Phase: velerov1.RestorePhaseInProgress, StartTimestamp: &start, Warnings: 1, Errors: 2,
		Progress: &velerov1.RestoreProgress{TotalItems: 10, ItemsRestored: 3}}
	require.NoError(t, claim.Set(r, claim.Claim{Holder: "runner-1", Epoch: 1}))
	require.NoError(t, c.Create(t.Context(), r))
	return c, r
}

func TestProgress(t *testing.T) {
	c, _ := object(t)
	s := New(c, "velero", jobs{}, clock.RealClock{})
	got, err := s.GetProgress(t.Context(), &restorev1.GetProgressRequest{Name: "r"})
	require.NoError(t, err)
	p := got.GetProgress()
	require.Equal(t, "InProgress", p.GetPhase())
	require.Equal(t, "runner-1", p.GetHolder())
	require.EqualValues(t, 10, p.GetTotalItems())
	require.EqualValues(t, 3, p.GetItemsRestored())
	require.EqualValues(t, 1, p.GetWarnings())
	require.EqualValues(t, 2, p.GetErrors())
	require.EqualValues(t, 1_700_000_000, p.GetStartTime().GetSeconds())
	require.Nil(t, p.GetCompletionTime())

	live := New(c, "velero", jobs{"u": {Total: 20, Done: 15}}, clock.RealClock{})
	got, err = live.GetProgress(t.Context(), &restorev1.GetProgressRequest{Name: "r"})
	require.NoError(t, err)
	require.EqualValues(t, 15, got.GetProgress().GetItemsRestored(), "the job itself knows best")

	_, err = s.GetProgress(t.Context(), &restorev1.GetProgressRequest{Name: "absent"})
	require.ErrorIs(t, err, grpcerr.ErrNotFound)
}

// watched runs a watch and hands its messages out one by one.
func watched(t *testing.T, c client.Client) (*clocktesting.FakeClock, <-chan *restorev1.Progress, <-chan error) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	s := New(c, "velero", jobs{}, clk)
	sent, done := make(chan *restorev1.Progress), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- s.watch(ctx, "r", func(p *restorev1.Progress) error {
			select {
			case sent <- p:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
	}()
	t.Cleanup(cancel)
	return clk, sent, done
}

func TestWatchEndsWithTheTerminalPhase(t *testing.T) {
	c, r := object(t)
	clk, sent, done := watched(t, c)
	require.EqualValues(t, 3, (<-sent).GetItemsRestored())
	r.Status.Phase, r.Status.Progress.ItemsRestored = velerov1.RestorePhaseCompleted, 10
	require.NoError(t, c.Update(t.Context(), r))
	require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
	clk.Step(watchEvery)
	last := <-sent
	require.Equal(t, "Completed", last.GetPhase())
	require.EqualValues(t, 10, last.GetItemsRestored())
	require.Empty(t, last.GetHolder())
	require.NoError(t, <-done)
}

func TestWatchOfAReplacedRestore(t *testing.T) {
	c, r := object(t)
	clk, sent, done := watched(t, c)
	<-sent
	require.NoError(t, c.Delete(t.Context(), r))
	require.NoError(t, c.Create(t.Context(), &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "other"}}))
	require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
	clk.Step(watchEvery)
	require.ErrorIs(t, <-done, grpcerr.ErrConflict)
}

func TestWatchOfADeletedRestore(t *testing.T) {
	c, r := object(t)
	clk, sent, done := watched(t, c)
	<-sent
	require.NoError(t, c.Delete(t.Context(), r))
	require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
	clk.Step(watchEvery)
	require.ErrorIs(t, <-done, grpcerr.ErrNotFound)
}
