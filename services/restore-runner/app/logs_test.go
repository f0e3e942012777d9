package app

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
)

// logs are those of the restores worked on here.
type logs struct {
	jobs
	tails map[types.UID]*joblog.Tail
}

func (l logs) LogTail(uid types.UID) *joblog.Tail { return l.tails[uid] }

// startRunner serves the restores of instance runner-1.
func startRunner(t *testing.T, c client.Client, tails map[types.UID]*joblog.Tail) (restorev1.RestoreServiceClient, *clocktesting.FakeClock) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	api, _ := startServer(t, newServer(c, "velero", logs{tails: tails}, "runner-1", clk))
	return api, clk
}

// startServer returns a client of the server, and its address.
func startServer(t *testing.T, s *restoreServer) (restorev1.RestoreServiceClient, string) {
	t.Helper()
	server := grpc.NewServer(grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		st, _ := errgrpc.Status(h(srv, ss))
		return st.Err()
	}))
	restorev1.RegisterRestoreServiceServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return restorev1.NewRestoreServiceClient(conn), listener.Addr().String()
}

// readLog reads what a call sends, up to its end.
func readLog(t *testing.T, api restorev1.RestoreServiceClient, req *restorev1.StreamLogsRequest) (text string, err error) {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	stream, err := api.StreamLogs(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer of ann"), req)
	require.NoError(t, err)
	for {
		m, err := stream.Recv()
		if err != nil {
			return text, errgrpc.FromStatus(err)
		}
		text += m.GetText()
	}
}

func TestALogIsFollowedToTheEndOfTheRestore(t *testing.T) {
	c, r := newRestoreObject(t)
	tail := joblog.NewTail(1 << 20)
	tail.Add("one\n")
	tails := map[types.UID]*joblog.Tail{"u": tail}
	api, clk := startRunner(t, c, tails)
	stream, err := api.StreamLogs(t.Context(), &restorev1.StreamLogsRequest{Name: "r", Follow: true})
	require.NoError(t, err)
	m, err := stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "one\n", m.GetText())
	tail.Add("two\n")
	r.Status.Phase = velerov1.RestorePhaseCompleted
	require.NoError(t, c.Update(t.Context(), r))
	require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
	clk.Step(mark.ProgressPeriod)
	m, err = stream.Recv()
	require.NoError(t, err)
	require.Equal(t, "two\n", m.GetText())
	_, err = stream.Recv()
	require.EqualError(t, err, "EOF")
	_, err = readLog(t, api, &restorev1.StreamLogsRequest{Name: "absent"})
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
}

// A follower begins anew at the next attempt, of this instance or of another one.
func TestATakeoverEndsAStreamOfItsLog(t *testing.T) {
	c, r := newRestoreObject(t)
	tails := map[types.UID]*joblog.Tail{"u": joblog.NewTail(1 << 10)}
	s := newServer(c, "velero", logs{tails: tails}, "runner-1", clocktesting.NewFakeClock(time.Unix(0, 0)))
	l := &logStream{server: s, send: func(*restorev1.StreamLogsResponse) error { return nil }}
	require.NoError(t, l.sendNew(r))
	tails["u"] = joblog.NewTail(1)
	require.ErrorIs(t, l.sendNew(r), errgrpc.ErrUnavailable)
	require.NoError(t, claim.Set(r, claim.Claim{Owner: "runner-2", Epoch: 2}))
	err := l.sendNew(r)
	require.ErrorIs(t, err, errgrpc.ErrUnavailable)
	require.ErrorContains(t, err, "instance runner-2")
}

func TestARestoreThatNobodyWorksOnHasNoLiveLog(t *testing.T) {
	c, r := newRestoreObject(t)
	r.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations
	require.NoError(t, claim.Set(r, claim.Claim{Epoch: 1}))
	require.NoError(t, c.Update(t.Context(), r))
	api, _ := startRunner(t, c, nil)
	_, err := readLog(t, api, &restorev1.StreamLogsRequest{Name: "r"})
	require.ErrorIs(t, err, errgrpc.ErrPrecondition)
}
