package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/server"
)

// counted counts readings of the queue, and fails them on demand.
type counted struct {
	server.Queue
	reads atomic.Int64
	down  atomic.Bool
}

var errBroken = errors.New("broken")

func (c *counted) Snapshot(ctx context.Context) ([]queue.Job, error) {
	c.reads.Add(1)
	if c.down.Load() {
		return nil, errBroken
	}
	return c.Queue.Snapshot(ctx)
}

// watched is a service with a feed that the test's clock drives.
type watched struct {
	t     *testing.T
	c     client.Client
	queue *counted
	feed  *server.Feed
	clock *clocktesting.FakeClock
	api   queuev1.QueueServiceClient
}

func startWatch(t *testing.T, objects ...client.Object) *watched {
	t.Helper()
	s, c := newServer(objects...)
	w := &watched{t: t, c: c, queue: &counted{Queue: s.Queue}, clock: clocktesting.NewFakeClock(time.Unix(5000, 0))}
	w.feed = server.NewFeed(w.queue, w.clock)
	s.Feed = w.feed
	listener := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		st, _ := errgrpc.Status(h(srv, ss))
		return st.Err()
	}))
	queuev1.RegisterQueueServiceServer(srv, s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- srv.Serve(listener) }()
	go func() { ended <- w.feed.Run(ctx) }()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		srv.Stop()
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, <-ended)
	})
	w.api = queuev1.NewQueueServiceClient(conn)
	return w
}

func (w *watched) openStream() grpc.ServerStreamingClient[queuev1.WatchQueueResponse] {
	w.t.Helper()
	stream, err := w.api.WatchQueue(w.t.Context(), &queuev1.WatchQueueRequest{})
	require.NoError(w.t, err)
	return stream
}

// passPause lets the pause after a reading pass, once the feed is in it.
func (w *watched) passPause() {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.clock.Waiters() == 2 }, time.Minute, time.Millisecond, "the ticker, and the pause")
	w.clock.Step(time.Second)
}

// nextState reads one whole state.
func nextState(t *testing.T, stream grpc.ServerStreamingClient[queuev1.WatchQueueResponse]) (changed, removed []string) {
	t.Helper()
	for {
		m, err := stream.Recv()
		require.NoError(t, err)
		for _, e := range m.GetChanged() {
			changed = append(changed, fmt.Sprintf("%s %d", e.GetName(), e.GetPosition()))
		}
		removed = append(removed, m.GetRemovedUids()...)
		if m.GetComplete() {
			require.NotNil(t, m.GetReadTime())
			return changed, removed
		}
	}
}

func TestWatchQueueSendsTheQueueAndThenChanges(t *testing.T) {
	w := startWatch(t, queuedBackup("b1", 1, "a"), queuedBackup("b2", 2, "a"), queuedBackup("b3", 3, "a"))
	stream := w.openStream()
	changed, removed := nextState(t, stream)
	require.Equal(t, []string{"b1 1", "b2 2", "b3 3"}, changed)
	require.Empty(t, removed)

	require.NoError(t, w.c.Delete(t.Context(), queuedBackup("b2", 2)))
	w.feed.Changed()
	w.feed.Changed()
	require.EqualValues(t, 1, w.queue.reads.Load(), "not before a second has passed")
	w.passPause()
	changed, removed = nextState(t, stream)
	require.Equal(t, []string{"b3 2"}, changed)
	require.Equal(t, []string{"b2"}, removed)
	require.EqualValues(t, 2, w.queue.reads.Load(), "two changes are read once")

	// Who comes later gets the whole queue.
	other := w.openStream()
	w.passPause()
	changed, _ = nextState(t, other)
	require.Equal(t, []string{"b1 1", "b3 2"}, changed)
	// Without a notice the queue is read now and then; the first stream, which had no change to send,
	// continues.
	require.NoError(t, w.c.Create(t.Context(), newJobBackup("b4", "", "", 1)))
	w.passPause()
	w.clock.Step(time.Minute)
	for _, s := range []grpc.ServerStreamingClient[queuev1.WatchQueueResponse]{stream, other} {
		changed, _ = nextState(t, s)
		require.Equal(t, []string{"b4 3"}, changed)
	}
}

func TestWatchQueueOfAnEmptyQueueAnswers(t *testing.T) {
	w := startWatch(t)
	changed, removed := nextState(t, w.openStream())
	require.Empty(t, changed)
	require.Empty(t, removed)
}

func TestNobodyWatchesNobodyReads(t *testing.T) {
	w := startWatch(t, queuedBackup("b1", 1, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := w.api.WatchQueue(ctx, &queuev1.WatchQueueRequest{})
	require.NoError(t, err)
	nextState(t, stream)
	cancel()
	_, err = stream.Recv()
	require.Equal(t, codes.Canceled, status.Code(err))
	require.Eventually(t, func() bool { return w.feed.Watchers() == 0 }, time.Minute, time.Millisecond)
	w.passPause()
	w.feed.Changed()
	// The feed has seen the notice once another one fits in.
	require.Eventually(t, func() bool { return w.feed.Noticed() }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, w.queue.reads.Load())
}

func TestWatchQueueEndsWhenTheQueueCannotBeRead(t *testing.T) {
	w := startWatch(t, queuedBackup("b1", 1, "a"))
	stream := w.openStream()
	nextState(t, stream)
	w.queue.down.Store(true)
	w.feed.Changed()
	w.passPause()
	_, err := stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	w.queue.down.Store(false)
	again := w.openStream()
	w.passPause()
	changed, _ := nextState(t, again)
	require.Equal(t, []string{"b1 1"}, changed)
}

// A long queue comes in messages that clients accept, and only the last one ends the state.
func TestWatchQueueSplitsLargeStates(t *testing.T) {
	var objects []client.Object
	for i := range 30 {
		b := queuedBackup(fmt.Sprintf("b%02d", i), i+1)
		for n := range 2000 {
			b.Spec.IncludedNamespaces = append(b.Spec.IncludedNamespaces, fmt.Sprintf("a-namespace-with-a-rather-long-name-%04d-%02d", n, i))
		}
		objects = append(objects, b)
	}
	w := startWatch(t, objects...)
	stream := w.openStream()
	first, err := stream.Recv()
	require.NoError(t, err)
	require.False(t, first.GetComplete())
	changed, _ := nextState(t, stream)
	require.Len(t, changed, 30-len(first.GetChanged()))

	b := &velerov1.Backup{}
	require.NoError(t, w.c.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "b07"}, b))
	require.NoError(t, kube.Update(t.Context(), w.c, w.c, b, func(b *velerov1.Backup) error { b.Status.Phase = velerov1.BackupPhaseReadyToStart; return nil }))
	w.feed.Changed()
	w.passPause()
	changed, _ = nextState(t, stream)
	require.Len(t, changed, 23, "b07 and those behind it")
	require.Equal(t, "b07 0", changed[0])
}
