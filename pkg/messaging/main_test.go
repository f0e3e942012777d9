package messaging_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = time.Minute
	tick     = 10 * time.Millisecond
)

// bed is a real server, a client under test and a plain client that looks and meddles.
type bed struct {
	t      *testing.T
	cfg    embednats.Config
	server *embednats.Server
	client *messaging.Client
	js     jetstream.JetStream
}

func newBed(t *testing.T, configure ...func(*messaging.Config)) *bed {
	t.Helper()
	b := &bed{t: t, cfg: embednats.Config{Dir: t.TempDir()}}
	b.startServer()
	t.Cleanup(func() { b.server.Stop() })
	cfg := messaging.Config{URL: b.server.URL(), Name: t.Name(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
	for _, f := range configure {
		f(&cfg)
	}
	client, err := messaging.Connect(t.Context(), cfg)
	require.NoError(t, err)
	b.client = client
	t.Cleanup(client.Close)
	conn, err := nats.Connect(b.server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	b.js, err = jetstream.New(conn)
	require.NoError(t, err)
	require.NoError(t, client.EnsureStreams(t.Context()))
	return b
}

// startServer starts the server, again on the same port and directory after a stop.
func (b *bed) startServer() {
	server, err := embednats.Start(b.cfg)
	require.NoError(b.t, err)
	b.server = server
	if b.cfg.Port == 0 {
		b.cfg.Port = server.Port()
	}
}

func (b *bed) pendingMessages(stream string) uint64 {
	s, err := b.js.Stream(b.t.Context(), stream)
	require.NoError(b.t, err)
	return s.CachedInfo().State.Msgs
}

// consumeHints runs a consumer until the test ends.
func (b *bed) consumeHints(cfg messaging.ConsumerConfig, handle messaging.Handler) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := b.client.Consume(ctx, messaging.WorkBackupRun, cfg, handle); err != nil {
			b.t.Error(err)
		}
	})
	stop = func() { cancel(); group.Wait() }
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) publishHint(uid string) {
	b.t.Helper()
	require.NoError(b.t, b.client.Publish(b.t.Context(), messaging.WorkBackupRun, newHint(uid)))
}

func (b *bed) requireEventually(condition func() bool, msg string) {
	b.t.Helper()
	require.Eventually(b.t, condition, patience, tick, msg)
}

func newHint(uid string) *workv1.Hint {
	return &workv1.Hint{Kind: "Backup", Namespace: "velero", Name: "daily", Uid: uid}
}
