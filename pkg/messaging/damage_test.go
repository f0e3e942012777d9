package messaging_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// restartServer stops the server, lets meddle change its directory and starts it again.
func (b *bed) restartServer(meddle func()) {
	b.t.Helper()
	b.server.Stop()
	b.requireEventually(func() bool { return !b.client.Connected() }, "disconnected")
	meddle()
	b.startServer()
	b.requireEventually(b.client.Connected, "reconnected")
}

// requireReaches publishes until the hint is handled: a server that just came up may refuse for a moment.
func (b *bed) requireReaches(uid string, seen <-chan string) {
	b.t.Helper()
	b.requireEventually(func() bool {
		_ = b.client.Publish(b.t.Context(), messaging.WorkBackupRun, newHint(uid))
		for {
			select {
			case got := <-seen:
				if got == uid {
					return true
				}
			default:
				return false
			}
		}
	}, uid)
}

func (b *bed) watchHints() <-chan string {
	seen := make(chan string, 1000)
	b.consumeHints(messaging.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		seen <- h.GetUid()
		return messaging.Done()
	})
	return seen
}

func TestAServerThatForgotEverything(t *testing.T) {
	b := newBed(t)
	seen := b.watchHints()
	b.requireReaches("u1", seen)
	b.restartServer(func() { b.cfg.Dir = t.TempDir() })
	b.requireReaches("u2", seen)
}

// An old copy of the directory: what was done is asked for again, and what is new gets through.
func TestAServerThatWentBackInTime(t *testing.T) {
	b := newBed(t)
	b.publishHint("u1")
	old := t.TempDir()
	b.restartServer(func() { require.NoError(t, os.CopyFS(old, os.DirFS(b.cfg.Dir))) })
	seen := b.watchHints()
	require.Equal(t, "u1", <-seen)
	b.requireReaches("u2", seen)
	b.requireEventually(func() bool { return b.pendingMessages(messaging.StreamWork) == 0 }, "acked")
	b.restartServer(func() { b.cfg.Dir = old })
	for got := <-seen; got != "u1"; got = <-seen { // replayed, after what was still to be seen
	}
	b.requireReaches("u3", seen)
	b.requireReaches("u2", seen)
}

// Messages of other publishers on the subject: each is handled by itself.
func TestDuplicatesAreHandledLikeAnyOther(t *testing.T) {
	b := newBed(t)
	seen := b.watchHints()
	raw, err := proto.Marshal(newHint("u1"))
	require.NoError(t, err)
	for range 3 {
		b.requireEventually(func() bool {
			_, err := b.js.Publish(t.Context(), "holdfast.work.backup.run.u1", raw)
			return err == nil
		}, "accepted once the one before is acked")
		require.Equal(t, "u1", <-seen)
	}
}

// Publishing without a server fails at once and leaves nothing to arrive later.
func TestPublishingWithoutAServerIsRefusedAtOnce(t *testing.T) {
	b := newBed(t)
	b.server.Stop()
	b.requireEventually(func() bool { return !b.client.Connected() }, "disconnected")
	require.ErrorIs(t, b.client.Publish(t.Context(), messaging.WorkBackupRun, newHint("u1")), nats.ErrReconnectBufExceeded, "it is not waited for")
	require.ErrorIs(t, b.client.PublishEvent(t.Context(), newEvent("u1", "Queued")), nats.ErrReconnectBufExceeded)
	b.startServer()
	b.requireEventually(b.client.Connected, "reconnected")
	require.Zero(t, b.pendingMessages(messaging.StreamWork))
	b.publishHint("u1")
	require.EqualValues(t, 1, b.pendingMessages(messaging.StreamWork))
}

type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A server that starts late: neither the attempts to connect nor those of a consumer are logged one by one.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	attempts := make(chan struct{}, 100)
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			_ = conn.Close()
			attempts <- struct{}{}
		}
	}()
	b := &bed{t: t, cfg: embednats.Config{Dir: t.TempDir(), Port: listener.Addr().(*net.TCPAddr).Port}}
	log, clock := make(logLines, 100), clocktesting.NewFakeClock(time.Now())
	b.client, err = messaging.Connect(t.Context(), messaging.Config{
		URL: "nats://127.0.0.1:1," + listener.Addr().String(), Name: t.Name(), Log: slog.New(slog.NewTextHandler(log, nil)), Clock: clock,
	})
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	seen := b.watchHints()
	require.Contains(t, <-log, "No connection to NATS; will retry")
	for range 3 {
		b.requireEventually(clock.HasWaiters, "the consumer tried")
		clock.Step(time.Second)
		<-attempts
	}
	require.NoError(t, listener.Close())
	b.startServer()
	t.Cleanup(func() { b.server.Stop() })
	require.Contains(t, <-log, "Connected to NATS")
	b.requireEventually(func() bool {
		clock.Step(time.Second)
		return b.client.Publish(t.Context(), messaging.WorkBackupRun, newHint("u1")) == nil && len(seen) > 0
	}, "the consumer works")
	b.server.Stop()
	for line := ""; !strings.Contains(line, "No connection to NATS"); line = <-log {
	}
}

// A client that is closed at once leaves no goroutine: goleak looks.
func TestAClientMayBeClosedAtOnce(t *testing.T) {
	for range 100 {
		client, err := messaging.Connect(t.Context(), messaging.Config{URL: "nats://127.0.0.1:1", Name: t.Name(), Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		client.Close()
	}
}

// A server that refuses the client's credentials says so when it is reached, also if it was not there at first: the loss alone does not.
func TestARefusalIsLogged(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	b := &bed{t: t, cfg: embednats.Config{Dir: t.TempDir(), Port: listener.Addr().(*net.TCPAddr).Port}}
	log := make(logLines, 100)
	b.client, err = messaging.Connect(t.Context(), messaging.Config{URL: "nats://" + listener.Addr().String(), Name: t.Name(), Log: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	for range 2 { // before the first connection, and after it
		require.Contains(t, <-log, "No connection to NATS; will retry")
		b.cfg.Token = "another"
		b.startServer()
		require.Contains(t, <-log, "NATS refuses the connection; will retry\" error=\"nats: Authorization Violation")
		b.server.Stop()
		b.cfg.Token = ""
		b.startServer()
		require.Contains(t, <-log, "Connected to NATS")
		b.server.Stop()
	}
}
