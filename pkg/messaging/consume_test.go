package messaging_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func pastTimestamp() *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
}

func TestRetryComesBackAfterItsDelay(t *testing.T) {
	b := newBed(t)
	const delay = 300 * time.Millisecond
	var calls atomic.Int32
	var first time.Time
	waited := make(chan time.Duration, 1)
	b.consumeHints(messaging.ConsumerConfig{}, func(context.Context, *workv1.Hint) messaging.Outcome {
		if calls.Add(1) == 1 {
			first = time.Now()
			return messaging.Retry(delay, errors.New("not yet"))
		}
		waited <- time.Since(first)
		return messaging.Done()
	})
	b.publishHint("u1")
	require.GreaterOrEqual(t, <-waited, delay, "the server kept it back")
	b.requireEventually(func() bool { return b.pendingMessages(messaging.StreamWork) == 0 }, "acked")
}

// A job of many AckWaits is delivered once, to one of two consumers.
func TestHeartbeatsKeepALongJob(t *testing.T) {
	b := newBed(t)
	const wait = 2 * time.Second // a loaded machine may stand still for half of it
	var calls atomic.Int32
	finish := make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	handle := func(context.Context, *workv1.Hint) messaging.Outcome {
		calls.Add(1)
		<-finish
		return messaging.Done()
	}
	for range 2 {
		b.consumeHints(messaging.ConsumerConfig{AckWait: wait}, handle)
	}
	t.Cleanup(end) // before the consumers stop, or a failure would hang
	b.publishHint("u1")
	b.requireEventually(func() bool { return calls.Load() > 0 }, "delivered, so the consumer exists")
	consumer, err := b.js.Consumer(t.Context(), messaging.StreamWork, "backup-run")
	require.NoError(t, err)
	started := time.Now()
	b.requireEventually(func() bool { return time.Since(started) > 3*wait }, "three times AckWait passed")
	info, err := consumer.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, info.NumAckPending)
	require.Zero(t, info.NumRedelivered)
	require.EqualValues(t, 1, calls.Load())
	end()
	b.requireEventually(func() bool { return b.pendingMessages(messaging.StreamWork) == 0 }, "acked")
}

// The consumer's lost heartbeat must not end the job: its context does not end.
func TestADeadQueueDoesNotStopAJob(t *testing.T) {
	b := newBed(t)
	started, finish := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	b.consumeHints(messaging.ConsumerConfig{AckWait: 300 * time.Millisecond}, func(ctx context.Context, _ *workv1.Hint) messaging.Outcome {
		close(started)
		<-finish
		ended <- ctx.Err()
		return messaging.Done()
	})
	b.publishHint("u1")
	<-started
	b.server.Stop()
	gone := time.Now()
	b.requireEventually(func() bool { return time.Since(gone) > time.Second }, "several heartbeats were lost")
	close(finish)
	require.NoError(t, <-ended)
	b.startServer()
}

func TestStreamsDeletedMidwayAreRepaired(t *testing.T) {
	b := newBed(t)
	seen := make(chan string, 9)
	b.consumeHints(messaging.ConsumerConfig{Concurrency: 2}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		seen <- h.GetUid()
		return messaging.Done()
	})
	b.publishHint("u1")
	require.Equal(t, "u1", <-seen)
	b.requireEventually(func() bool { return b.pendingMessages(messaging.StreamWork) == 0 }, "acked")
	require.NoError(t, b.js.DeleteStream(t.Context(), messaging.StreamWork))
	b.publishHint("u2")
	require.Equal(t, "u2", <-seen)
	b.requireEventually(func() bool { return b.pendingMessages(messaging.StreamWork) == 0 }, "acked")
	require.NoError(t, b.js.DeleteConsumer(t.Context(), messaging.StreamWork, "backup-run"))
	b.publishHint("u3")
	require.Equal(t, "u3", <-seen)
}

func TestAPanicIsContained(t *testing.T) {
	b := newBed(t)
	seen := make(chan string, 9)
	b.consumeHints(messaging.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		if h.GetUid() == "bad" {
			panic("poison")
		}
		seen <- h.GetUid()
		return messaging.Done()
	})
	b.publishHint("bad")
	b.publishHint("good")
	require.Equal(t, "good", <-seen)
	b.requireEventually(func() bool { return b.pendingMessages(messaging.StreamWork) == 1 }, "the poisoned hint waits for its retry")
}

func TestShutdownWaitsForTheHandlerAndItsAck(t *testing.T) {
	b := newBed(t)
	started := make(chan struct{})
	stop := b.consumeHints(messaging.ConsumerConfig{}, func(ctx context.Context, _ *workv1.Hint) messaging.Outcome {
		close(started)
		<-ctx.Done()
		return messaging.Done()
	})
	b.publishHint("u1")
	<-started
	stop()
	require.Zero(t, b.pendingMessages(messaging.StreamWork))
}

func newEvent(uid, phase string) *eventv1.Event {
	return &eventv1.Event{Kind: "Backup", Namespace: "velero", Name: "daily", Uid: uid, Phase: phase, Time: pastTimestamp()}
}

// Events are stored by the UID of their object, over a restart and a deleted stream.
func TestEventsAreKept(t *testing.T) {
	b := newBed(t)
	kept := func(phase string) {
		t.Helper()
		b.requireEventually(func() bool {
			if b.client.PublishEvent(t.Context(), newEvent("u1", phase)) != nil {
				return false
			}
			return b.lastEvent("u1").GetPhase() == phase
		}, phase)
	}
	kept("Queued")
	require.NoError(t, b.js.DeleteStream(t.Context(), messaging.StreamEvents))
	kept("InProgress")
	b.server.Stop()
	b.startServer()
	b.requireEventually(b.client.Connected, "reconnected")
	kept("Completed")
	err := b.client.PublishEvent(t.Context(), newEvent("u1", ""))
	require.ErrorIs(t, err, messaging.ErrInvalidEvent)
	require.ErrorContains(t, err, "phase")
}

// lastEvent is the newest event about an object, as who reads the stream gets it.
func (b *bed) lastEvent(subject string) *eventv1.Event {
	stream, err := b.js.Stream(b.t.Context(), messaging.StreamEvents)
	require.NoError(b.t, err)
	msg, err := stream.GetLastMsgForSubject(b.t.Context(), "holdfast.event."+subject)
	require.NoError(b.t, err)
	event := &eventv1.Event{}
	require.NoError(b.t, proto.Unmarshal(msg.Data, event))
	return event
}
