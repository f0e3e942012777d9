package fabric_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/fabric"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func past() *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
}

func TestRetryComesBackAfterItsDelay(t *testing.T) {
	b := newBed(t)
	const delay = 300 * time.Millisecond
	var calls atomic.Int32
	var first time.Time
	waited := make(chan time.Duration, 1)
	b.consume(fabric.ConsumerConfig{}, func(context.Context, *workv1.Hint) fabric.Outcome {
		if calls.Add(1) == 1 {
			first = time.Now()
			return fabric.Retry(delay, errors.New("not yet"))
		}
		waited <- time.Since(first)
		return fabric.Done()
	})
	b.publish("u1")
	require.GreaterOrEqual(t, <-waited, delay, "the server kept it back")
	b.eventually(func() bool { return b.pending(fabric.StreamWork) == 0 }, "acked")
}

// A job of many AckWaits is delivered once, to one of two consumers.
func TestHeartbeatsKeepALongJob(t *testing.T) {
	b := newBed(t)
	const wait = 2 * time.Second // a loaded machine may stand still for half of it
	var calls atomic.Int32
	finish := make(chan struct{})
	end := sync.OnceFunc(func() { close(finish) })
	handle := func(context.Context, *workv1.Hint) fabric.Outcome {
		calls.Add(1)
		<-finish
		return fabric.Done()
	}
	for range 2 {
		b.consume(fabric.ConsumerConfig{AckWait: wait}, handle)
	}
	t.Cleanup(end) // before the consumers stop, or a failure would hang
	b.publish("u1")
	consumer, err := b.js.Consumer(t.Context(), fabric.StreamWork, "backup-run")
	require.NoError(t, err)
	started := time.Now()
	b.eventually(func() bool { return time.Since(started) > 3*wait }, "three times AckWait passed")
	info, err := consumer.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, info.NumAckPending)
	require.Zero(t, info.NumRedelivered)
	require.EqualValues(t, 1, calls.Load())
	end()
	b.eventually(func() bool { return b.pending(fabric.StreamWork) == 0 }, "acked")
}

// The consumer's lost heartbeat must not end the job: its context lives on.
func TestADeadQueueDoesNotStopAJob(t *testing.T) {
	b := newBed(t)
	started, finish := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	b.consume(fabric.ConsumerConfig{AckWait: 300 * time.Millisecond}, func(ctx context.Context, _ *workv1.Hint) fabric.Outcome {
		close(started)
		<-finish
		ended <- ctx.Err()
		return fabric.Done()
	})
	b.publish("u1")
	<-started
	b.server.Stop()
	gone := time.Now()
	b.eventually(func() bool { return time.Since(gone) > time.Second }, "several heartbeats were lost")
	close(finish)
	require.NoError(t, <-ended)
	b.start()
}

func TestAgainPublishesAfterTheAck(t *testing.T) {
	b := newBed(t)
	var calls atomic.Int32
	b.consume(fabric.ConsumerConfig{}, func(context.Context, *workv1.Hint) fabric.Outcome {
		if calls.Add(1) < 4 {
			return fabric.Again()
		}
		return fabric.Done()
	})
	b.publish("u1")
	b.eventually(func() bool { return calls.Load() == 4 && b.pending(fabric.StreamWork) == 0 }, "four rounds, then done")
}

// Again during an outage: the hint is accepted once the server is back.
func TestAgainInsists(t *testing.T) {
	b := newBed(t)
	started, finish := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	b.consume(fabric.ConsumerConfig{}, func(context.Context, *workv1.Hint) fabric.Outcome {
		if calls.Add(1) > 1 {
			return fabric.Done()
		}
		close(started)
		<-finish
		return fabric.Again()
	})
	b.publish("u1")
	<-started
	require.NoError(t, b.js.DeleteStream(t.Context(), fabric.StreamWork))
	b.server.Stop()
	close(finish)
	b.start()
	b.eventually(func() bool { return calls.Load() == 2 }, "the hint came back though ack and stream were lost")
}

func TestLeftIsAskedAfterTheAck(t *testing.T) {
	b := newBed(t)
	var asked, calls atomic.Int32
	var pending atomic.Uint64
	b.consume(fabric.ConsumerConfig{Left: func(context.Context, *workv1.Hint) bool {
		pending.Store(b.pending(fabric.StreamWork))
		return asked.Add(1) == 1
	}}, func(context.Context, *workv1.Hint) fabric.Outcome {
		calls.Add(1)
		return fabric.Done()
	})
	b.publish("u1")
	b.eventually(func() bool { return calls.Load() == 2 && asked.Load() == 2 }, "once more, then no more")
	require.Zero(t, pending.Load(), "the subject was free when asked")
}

func TestStreamsDeletedMidwayAreRepaired(t *testing.T) {
	b := newBed(t)
	seen := make(chan string, 9)
	b.consume(fabric.ConsumerConfig{Concurrency: 2}, func(_ context.Context, h *workv1.Hint) fabric.Outcome {
		seen <- h.GetUid()
		return fabric.Done()
	})
	b.publish("u1")
	require.Equal(t, "u1", <-seen)
	b.eventually(func() bool { return b.pending(fabric.StreamWork) == 0 }, "acked")
	require.NoError(t, b.js.DeleteStream(t.Context(), fabric.StreamWork))
	b.publish("u2")
	require.Equal(t, "u2", <-seen)
	b.eventually(func() bool { return b.pending(fabric.StreamWork) == 0 }, "acked")
	require.NoError(t, b.js.DeleteConsumer(t.Context(), fabric.StreamWork, "backup-run"))
	b.publish("u3")
	require.Equal(t, "u3", <-seen)
}

func TestConsumingSurvivesARestart(t *testing.T) {
	b := newBed(t)
	seen := make(chan string, 9)
	b.consume(fabric.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) fabric.Outcome {
		seen <- h.GetUid()
		return fabric.Done()
	})
	b.publish("u1")
	require.Equal(t, "u1", <-seen)
	b.eventually(func() bool { return b.pending(fabric.StreamWork) == 0 }, "acked")
	b.server.Stop()
	b.eventually(func() bool { return !b.client.Connected() }, "disconnected")
	b.start()
	b.eventually(b.client.Connected, "reconnected")
	b.publish("u2")
	require.Equal(t, "u2", <-seen)
}

func TestAPanicIsContained(t *testing.T) {
	b := newBed(t)
	seen := make(chan string, 9)
	b.consume(fabric.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) fabric.Outcome {
		if h.GetUid() == "bad" {
			panic("poison")
		}
		seen <- h.GetUid()
		return fabric.Done()
	})
	b.publish("bad")
	b.publish("good")
	require.Equal(t, "good", <-seen)
	b.eventually(func() bool { return b.pending(fabric.StreamWork) == 1 }, "the poisoned hint waits for its retry")
}

func TestShutdownWaitsForTheHandlerAndItsAck(t *testing.T) {
	b := newBed(t)
	started := make(chan struct{})
	stop := b.consume(fabric.ConsumerConfig{}, func(ctx context.Context, _ *workv1.Hint) fabric.Outcome {
		close(started)
		<-ctx.Done()
		return fabric.Done()
	})
	b.publish("u1")
	<-started
	stop()
	require.Zero(t, b.pending(fabric.StreamWork))
}

func event(uid, phase string) *eventv1.Event {
	return &eventv1.Event{Kind: "Backup", Namespace: "velero", Name: "daily", Uid: uid, Phase: phase, Time: past()}
}

// Every subscriber sees events again and again, over a restart and a deleted stream.
func TestEventsReachEverySubscriber(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	var seen [2]sync.Map
	var group sync.WaitGroup
	for i := range seen {
		group.Go(func() {
			if err := b.client.Subscribe(ctx, func(e *eventv1.Event) { seen[i].Store(e.GetPhase(), true) }); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); group.Wait() })
	both := func(phase string) {
		b.eventually(func() bool {
			err := b.client.PublishEvent(t.Context(), event("u1", phase))
			_, first := seen[0].Load(phase)
			_, second := seen[1].Load(phase)
			return err == nil && first && second
		}, phase)
	}
	both("Queued")
	require.NoError(t, b.js.DeleteStream(t.Context(), fabric.StreamEvents))
	both("InProgress")
	b.server.Stop()
	b.start()
	b.eventually(b.client.Connected, "reconnected")
	both("Completed")
	err := b.client.PublishEvent(t.Context(), event("u1", ""))
	require.ErrorIs(t, err, fabric.ErrInvalidEvent)
	require.ErrorContains(t, err, "phase")
}
