package messaging_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func withName(name string) func(*messaging.Config) {
	return func(cfg *messaging.Config) {
		cfg.Installation = func(context.Context) (string, error) { return name, nil }
	}
}

// secondClient is a second client of the server.
func (b *bed) secondClient(configure func(*messaging.Config)) *messaging.Client {
	b.t.Helper()
	cfg := messaging.Config{URL: b.server.URL(), Name: "other", Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
	configure(&cfg)
	client, err := messaging.Connect(b.t.Context(), cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(client.Close)
	return client
}

func changedEvent(uid string) *eventv1.Event {
	return &eventv1.Event{Kind: "Backup", Namespace: "velero", Name: "daily", Uid: uid, Phase: "Queued", Time: timestamppb.Now()}
}

// Two installations on one NATS account share a consumer: each takes half of the other's hints,
// finds no such object, and acknowledges them.
func TestInstallationsDoNotTakeEachOthersWork(t *testing.T) {
	b := newBed(t, withName("one"))
	two := b.secondClient(withName("two"))
	var mine atomic.Int32
	b.consumeHints(messaging.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		if h.GetUid() != "mine" {
			t.Errorf("got the hint of %s", h.GetUid())
		}
		mine.Add(1)
		return messaging.Done()
	})
	for range 5 {
		require.NoError(t, two.Publish(t.Context(), messaging.WorkBackupRun, newHint("theirs")))
		require.NoError(t, two.PublishEvent(t.Context(), changedEvent("theirs")))
	}
	b.publishHint("mine")
	b.requireEventually(func() bool { return mine.Load() == 1 && b.pendingMessages(messaging.StreamWork) == 1 }, "ours is done, theirs waits for them")
	require.Equal(t, "theirs", b.lastEvent("two.theirs").GetUid(), "events name the installation too")
}

// As long as it is not known which installation it is, nothing is published under another name.
func TestAnUnknownInstallationPublishesNothing(t *testing.T) {
	var known atomic.Bool
	b := newBed(t, func(cfg *messaging.Config) {
		cfg.Installation = func(context.Context) (string, error) {
			if !known.Load() {
				return "", errors.New("the API server is away")
			}
			return "one", nil
		}
	})
	require.ErrorIs(t, b.client.Publish(t.Context(), messaging.WorkBackupRun, newHint("u1")), messaging.ErrInstallation)
	require.Zero(t, b.pendingMessages(messaging.StreamWork))
	known.Store(true)
	b.publishHint("u1")
	require.EqualValues(t, 1, b.pendingMessages(messaging.StreamWork))
}
