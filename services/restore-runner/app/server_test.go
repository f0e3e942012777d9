package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/joblog"
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

func (j jobs) LogTail(types.UID) *joblog.Tail { return nil }

func newRestoreObject(t *testing.T) (client.Client, *velerov1.Restore) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	start := metav1.NewTime(time.Unix(1_700_000_000, 0))
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "u"}}
	r.Status = velerov1.RestoreStatus{Phase: velerov1.RestorePhaseInProgress, StartTimestamp: &start, Warnings: 1, Errors: 2,
		Progress: &velerov1.RestoreProgress{TotalItems: 10, ItemsRestored: 3}}
	require.NoError(t, claim.Set(r, claim.Claim{Owner: "runner-1", Epoch: 1}))
	require.NoError(t, c.Create(t.Context(), r))
	return c, r
}

func TestProgress(t *testing.T) {
	c, _ := newRestoreObject(t)
	s := newServer(c, "velero", jobs{}, "runner-1", clock.RealClock{})
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

	live := newServer(c, "velero", jobs{"u": {Total: 20, Done: 15}}, "runner-1", clock.RealClock{})
	got, err = live.GetProgress(t.Context(), &restorev1.GetProgressRequest{Name: "r"})
	require.NoError(t, err)
	require.EqualValues(t, 15, got.GetProgress().GetItemsRestored(), "the job itself knows best")

	_, err = s.GetProgress(t.Context(), &restorev1.GetProgressRequest{Name: "absent"})
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
}

// sink is a stream that notes what is sent.
type sink struct {
	grpc.ServerStreamingServer[restorev1.WatchProgressResponse]
	ctx  context.Context //nolint:containedctx // as long as the call
	sent []*restorev1.Progress
}

func (s *sink) Context() context.Context { return s.ctx }

func (s *sink) Send(m *restorev1.WatchProgressResponse) error {
	s.sent = append(s.sent, m.GetProgress())
	return nil
}

func TestAWatchOfARestoreThatEnded(t *testing.T) {
	c, r := newRestoreObject(t)
	r.Status.Phase, r.Status.Progress.ItemsRestored = velerov1.RestorePhaseCompleted, 10
	require.NoError(t, c.Update(t.Context(), r))
	s := newServer(c, "velero", jobs{"u": {Total: 20, Done: 15}}, "runner-1", clock.RealClock{})
	stream := &sink{ctx: t.Context()}
	require.NoError(t, s.WatchProgress(&restorev1.WatchProgressRequest{Name: "r"}, stream))
	require.Len(t, stream.sent, 1)
	require.Equal(t, "Completed", stream.sent[0].GetPhase())
	require.EqualValues(t, 10, stream.sent[0].GetItemsRestored(), "the object of a restore that ended says it")
	require.Empty(t, stream.sent[0].GetHolder())
}
