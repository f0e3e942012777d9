package messaging_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// restart stops the server, lets meddle change its directory and starts it again.
func (b *bed) restart(meddle func()) {
	b.t.Helper()
	b.server.Stop()
	b.eventually(func() bool { return !b.client.Connected() }, "disconnected")
	meddle()
	b.start()
	b.eventually(b.client.Connected, "reconnected")
}

// reaches publishes until the hint is handled: a server that just came up may refuse for a moment.
func (b *bed) reaches(uid string, seen <-chan string) {
	b.t.Helper()
	b.eventually(func() bool {
		_ = b.client.Publish(b.t.Context(), messaging.WorkBackupRun, hint(uid))
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

func (b *bed) watched() <-chan string {
	seen := make(chan string, 1000)
	b.consume(messaging.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		seen <- h.GetUid()
		return messaging.Done()
	})
	return seen
}

func TestAServerThatForgotEverything(t *testing.T) {
	b := newBed(t)
	seen := b.watched()
	b.reaches("u1", seen)
	b.restart(func() { b.cfg.Dir = t.TempDir() })
	b.reaches("u2", seen)
}

// An old copy of the directory: what was done is asked for again, and what is new gets through.
func TestAServerThatWentBackInTime(t *testing.T) {
	b := newBed(t)
	b.publish("u1")
	old := t.TempDir()
	b.restart(func() { require.NoError(t, os.CopyFS(old, os.DirFS(b.cfg.Dir))) })
	seen := b.watched()
	require.Equal(t, "u1", <-seen)
	b.reaches("u2", seen)
	b.eventually(func() bool { return b.pending(messaging.StreamWork) == 0 }, "acked")
	b.restart(func() { b.cfg.Dir = old })
	for got := <-seen; got != "u1"; got = <-seen { // replayed, after what was still to be seen
	}
	b.reaches("u3", seen)
	b.reaches("u2", seen)
}

// Messages of other publishers on the subject: each is handled by itself.
func TestDuplicatesAreHandledLikeAnyOther(t *testing.T) {
	b := newBed(t)
	seen := b.watched()
	raw, err := proto.Marshal(hint("u1"))
	require.NoError(t, err)
	for range 3 {
		b.eventually(func() bool {
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
	b.eventually(func() bool { return !b.client.Connected() }, "disconnected")
	begin := time.Now()
	require.Error(t, b.client.Publish(t.Context(), messaging.WorkBackupRun, hint("u1")))
	require.Error(t, b.client.PublishEvent(t.Context(), event("u1", "Queued")))
	require.Less(t, time.Since(begin), 4*time.Second)
	b.start()
	b.eventually(b.client.Connected, "reconnected")
	require.Zero(t, b.pending(messaging.StreamWork))
}
