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

func named(name string) func(*messaging.Config) {
	return func(cfg *messaging.Config) {
		cfg.Installation = func(context.Context) (string, error) { return name, nil }
	}
}

// other is a second client of the server.
func (b *bed) other(configure func(*messaging.Config)) *messaging.Client {
	b.t.Helper()
	cfg := messaging.Config{URL: b.server.URL(), Name: "other", Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
	configure(&cfg)
	client, err := messaging.Connect(b.t.Context(), cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(client.Close)
	return client
}

func changed(uid string) *eventv1.Event {
	return &eventv1.Event{Kind: "Backup", Namespace: "velero", Name: "daily", Uid: uid, Phase: "Queued", Time: timestamppb.Now()}
}

// Two installations on one NATS account share a consumer: each takes half of the other's hints,
// finds no such object, and acknowledges them.
func TestInstallationsDoNotTakeEachOthersWork(t *testing.T) {
	b := newBed(t, named("one"))
	two := b.other(named("two"))
	var mine atomic.Int32
	b.consume(messaging.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		if h.GetUid() != "mine" {
			t.Errorf("got the hint of %s", h.GetUid())
		}
		mine.Add(1)
		return messaging.Done()
	})
	for range 5 {
		require.NoError(t, two.Publish(t.Context(), messaging.WorkBackupRun, hint("theirs")))
		require.NoError(t, two.PublishEvent(t.Context(), changed("theirs")))
	}
	b.publish("mine")
	b.eventually(func() bool { return mine.Load() == 1 && b.pending(messaging.StreamWork) == 1 }, "ours is done, theirs waits for them")
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
	require.ErrorIs(t, b.client.Publish(t.Context(), messaging.WorkBackupRun, hint("u1")), messaging.ErrInstallation)
	require.Zero(t, b.pending(messaging.StreamWork))
	known.Store(true)
	b.publish("u1")
	require.EqualValues(t, 1, b.pending(messaging.StreamWork))
}
