package mark_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSource(c client.Reader) (*mark.ProgressSource[*velerov1.Backup, *backupv1.Progress], *clocktesting.FakeClock) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	return &mark.ProgressSource[*velerov1.Backup, *backupv1.Progress]{
		Reader: c, Namespace: "velero", Clock: clk, Kind: "backup", New: func() *velerov1.Backup { return &velerov1.Backup{} },
		Describe: func(b *velerov1.Backup) *backupv1.Progress {
			return &backupv1.Progress{Phase: string(b.Status.Phase), Holder: mark.ClaimOwner(b, b.Status.Phase.Terminal())}
		},
		Terminal: func(b *velerov1.Backup) bool { return b.Status.Phase.Terminal() },
	}, clk
}

func newRunningBackup(t *testing.T) (client.Client, *velerov1.Backup) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "u"}}
	b.Status.Phase = velerov1.BackupPhaseInProgress
	require.NoError(t, claim.Set(b, claim.Claim{Owner: "runner-1", Epoch: 1}))
	require.NoError(t, c.Create(t.Context(), b))
	return c, b
}

// watched is a watch whose messages come one by one.
type watched struct {
	clock *clocktesting.FakeClock
	sent  chan *backupv1.Progress
	done  chan error
}

func watchBackup(t *testing.T, c client.Reader) *watched {
	t.Helper()
	s, clk := newSource(c)
	w := &watched{clock: clk, sent: make(chan *backupv1.Progress), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		w.done <- s.Watch(ctx, "b", func(p *backupv1.Progress) error {
			select {
			case w.sent <- p:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
	}()
	t.Cleanup(cancel)
	return w
}

// stepWatch lets the watch read once more.
func (w *watched) stepWatch(t *testing.T) {
	t.Helper()
	require.Eventually(t, w.clock.HasWaiters, time.Minute, time.Millisecond)
	w.clock.Step(mark.ProgressPeriod)
}

func TestAWatchEndsWithTheTerminalPhase(t *testing.T) {
	c, b := newRunningBackup(t)
	w := watchBackup(t, c)
	require.Equal(t, "runner-1", (<-w.sent).GetHolder())
	w.stepWatch(t)
	b.Status.Phase = velerov1.BackupPhaseCompleted
	require.NoError(t, c.Update(t.Context(), b))
	w.stepWatch(t)
	last := <-w.sent
	require.Equal(t, "Completed", last.GetPhase(), "what did not change is not sent again")
	require.Empty(t, last.GetHolder())
	require.NoError(t, <-w.done)
}

func TestAWatchOfAReplacedObjectEnds(t *testing.T) {
	c, b := newRunningBackup(t)
	w := watchBackup(t, c)
	<-w.sent
	require.NoError(t, c.Delete(t.Context(), b))
	require.NoError(t, c.Create(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: "other"}}))
	w.stepWatch(t)
	require.ErrorIs(t, <-w.done, errgrpc.ErrConflict)
}

func TestAWatchOfADeletedObjectEnds(t *testing.T) {
	c, b := newRunningBackup(t)
	w := watchBackup(t, c)
	<-w.sent
	require.NoError(t, c.Delete(t.Context(), b))
	w.stepWatch(t)
	require.ErrorIs(t, <-w.done, errgrpc.ErrNotFound)
}

func TestAWatchEndsWithItsCaller(t *testing.T) {
	c, _ := newRunningBackup(t)
	s, _ := newSource(c)
	gone := errors.New("gone")
	ctx, end := context.WithCancelCause(t.Context())
	require.ErrorIs(t, s.Watch(ctx, "b", func(*backupv1.Progress) error { end(gone); return nil }), gone)
	require.ErrorIs(t, s.Watch(t.Context(), "b", func(*backupv1.Progress) error { return gone }), gone)
}

// What the API server answered decides the status: callers repeat a call that is UNAVAILABLE.
func TestAFailedReadKeepsItsReason(t *testing.T) {
	away := apierrors.NewServiceUnavailable("starting")
	s, _ := newSource(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return away
		},
	}).Build())
	_, err := s.Get(t.Context(), "b")
	require.ErrorIs(t, err, away)
	st, _ := errgrpc.Status(err)
	require.Equal(t, "Unavailable", st.Code().String())
}

func TestTimesAreTold(t *testing.T) {
	require.Nil(t, mark.ProgressTime(nil))
	at := metav1.NewTime(time.Unix(1700000000, 0))
	require.EqualValues(t, 1700000000, mark.ProgressTime(&at).GetSeconds())
}
