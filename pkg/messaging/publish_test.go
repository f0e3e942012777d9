package messaging_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"context"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func TestAnEqualPendingHintIsFree(t *testing.T) {
	b := newBed(t)
	for range 3 {
		b.publishHint("u1")
	}
	b.publishHint("u2")
	unit := newHint("u1")
	unit.Unit = "unit-7"
	for range 2 {
		require.NoError(t, b.client.Publish(t.Context(), messaging.WorkBackupRun, unit))
	}
	require.EqualValues(t, 3, b.pendingMessages(messaging.StreamWork), "one per object, one per unit")
}

func TestBadHintsAreNamed(t *testing.T) {
	b := newBed(t)
	for field, h := range map[string]*workv1.Hint{
		"uid":  {Kind: "Backup", Namespace: "velero", Name: "daily", Uid: "a.b"},
		"name": {Kind: "Backup", Namespace: "velero", Uid: "u"},
		"unit": {Kind: "Backup", Namespace: "velero", Name: "daily", Uid: "u", Unit: "*"},
	} {
		err := b.client.Publish(t.Context(), messaging.WorkBackupRun, h)
		require.ErrorIs(t, err, messaging.ErrInvalidHint)
		require.ErrorContains(t, err, field)
	}
	require.ErrorContains(t, b.client.Publish(t.Context(), "backup.nope", newHint("u")), "backup.nope")
	require.ErrorContains(t, b.client.Consume(t.Context(), "backup.nope", messaging.ConsumerConfig{}, nil), "backup.nope")
}

// A stream that was created by hand gets the required settings, and keeps its messages.
func TestEnsureStreamsRepairsSettings(t *testing.T) {
	b := newBed(t)
	b.publishHint("u1")
	stream, err := b.js.Stream(t.Context(), messaging.StreamWork)
	require.NoError(t, err)
	changed := stream.CachedInfo().Config
	changed.MaxMsgsPerSubject, changed.DiscardNewPerSubject = -1, false
	_, err = b.js.UpdateStream(t.Context(), changed)
	require.NoError(t, err)
	require.NoError(t, b.client.EnsureStreams(t.Context()))
	b.publishHint("u1")
	require.EqualValues(t, 1, b.pendingMessages(messaging.StreamWork))
}

func TestConnectRefusesWhatCannotWork(t *testing.T) {
	for field, cfg := range map[string]messaging.Config{
		"url":         {},
		"credentials": {URL: "nats://127.0.0.1:1", CredsFile: "/nonexistent"},
		"connect":     {URL: "nats://127.0.0.1:x"},
	} {
		_, err := messaging.Connect(t.Context(), cfg)
		require.ErrorContains(t, err, field)
	}
}

// TestAPasswordIsNotPartOfAnError: a % that begins no escape makes the URL unreadable, and the
// library repeats all of it.
func TestAPasswordIsNotPartOfAnError(t *testing.T) {
	for _, bad := range []string{"nats://u:secret%zz@host", "nats://ok, nats://u:secret%@host", "u:secret%@host", "nats://u:sec ret@host", "nats://"} {
		_, err := messaging.Connect(t.Context(), messaging.Config{URL: bad})
		require.ErrorContains(t, err, "is no URL in its place", bad)
		require.NotContains(t, err.Error(), "sec", bad)
	}
	require.NoError(t, messaging.CheckURL("host, nats://u:se%25cret@host:4222,tls://x"))
}

// The header is part of the protocol: exact lower-case names, for any reader.
func TestTraceContextTravels(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	b := newBed(t, func(cfg *messaging.Config) { cfg.Tracer = provider })
	ctx, root := provider.Tracer("test").Start(t.Context(), "submit")
	require.NoError(t, b.client.Publish(ctx, messaging.WorkBackupRun, newHint("u1")))
	root.End()

	stream, err := b.js.Stream(t.Context(), messaging.StreamWork)
	require.NoError(t, err)
	raw, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, raw.Header["traceparent"], 1)
	require.Contains(t, raw.Header["traceparent"][0], root.SpanContext().TraceID().String())
	require.NotContains(t, raw.Header, "Traceparent")

	done := make(chan struct{})
	b.consumeHints(messaging.ConsumerConfig{}, func(ctx context.Context, _ *workv1.Hint) messaging.Outcome {
		_, span := provider.Tracer("test").Start(ctx, "work")
		span.End()
		close(done)
		return messaging.Done()
	})
	<-done
	b.requireEventually(func() bool { return len(spans.GetSpans()) == 4 }, "submit, publish, work, process")
	for _, span := range spans.GetSpans() {
		require.Equal(t, root.SpanContext().TraceID(), span.SpanContext.TraceID(), span.Name)
		operation, _, message := strings.Cut(span.Name, " backup.run")
		if !message {
			continue
		}
		found := map[string]any{}
		for _, kv := range span.Attributes {
			found[string(kv.Key)] = kv.Value.AsInterface()
		}
		require.Equal(t, "nats", found["messaging.system"])
		require.Equal(t, "backup.run", found["messaging.destination.name"])
		require.Equal(t, operation, found["messaging.operation.name"])
		require.Equal(t, map[string]string{"publish": "send", "process": "process"}[operation], found["messaging.operation.type"])
		require.Equal(t, "127.0.0.1", found["server.address"])
		require.Positive(t, found["server.port"])
		require.EqualValues(t, len(raw.Data), found["messaging.message.body.size"])
	}
}

func TestDeadLetterIsStoredBeforeTheHintIsGone(t *testing.T) {
	b := newBed(t)
	b.consumeHints(messaging.ConsumerConfig{}, func(context.Context, *workv1.Hint) messaging.Outcome {
		return messaging.DeadLetter(errors.New("cannot\nbe"))
	})
	b.publishHint("u1")
	b.requireEventually(func() bool {
		return b.pendingMessages(messaging.StreamDead) == 1 && b.pendingMessages(messaging.StreamWork) == 0
	}, "moved")
	stream, err := b.js.Stream(t.Context(), messaging.StreamDead)
	require.NoError(t, err)
	raw, err := stream.GetLastMsgForSubject(t.Context(), "holdfast.dead.backup.run.u1")
	require.NoError(t, err)
	require.Equal(t, []string{"cannot be"}, raw.Header["holdfast-reason"])
}

// While the dead letter cannot be stored, the hint stays.
func TestDeadLetterThatCannotBeStoredKeepsTheHint(t *testing.T) {
	b := newBed(t)
	full := jetstream.StreamConfig{Name: messaging.StreamDead, Subjects: []string{"holdfast.dead.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew, MaxMsgSize: 1}
	require.NoError(t, b.js.DeleteStream(t.Context(), messaging.StreamDead))
	_, err := b.js.CreateStream(t.Context(), full)
	require.NoError(t, err)
	tried := make(chan struct{}, 9)
	stop := b.consumeHints(messaging.ConsumerConfig{}, func(context.Context, *workv1.Hint) messaging.Outcome {
		tried <- struct{}{}
		return messaging.DeadLetter(errors.New("no"))
	})
	b.publishHint("u1")
	<-tried
	stop()
	require.EqualValues(t, 1, b.pendingMessages(messaging.StreamWork))
	require.Zero(t, b.pendingMessages(messaging.StreamDead))
}

func TestUnreadableMessagesAreGivenUp(t *testing.T) {
	b := newBed(t)
	_, err := b.js.Publish(t.Context(), "holdfast.work.backup.run.junk", []byte{0xff, 0xff})
	require.NoError(t, err)
	_, err = b.js.Publish(t.Context(), "holdfast.work.backup.run.empty", nil)
	require.NoError(t, err)
	b.consumeHints(messaging.ConsumerConfig{}, func(context.Context, *workv1.Hint) messaging.Outcome {
		t.Error("handled")
		return messaging.Done()
	})
	b.requireEventually(func() bool {
		return b.pendingMessages(messaging.StreamDead) == 2 && b.pendingMessages(messaging.StreamWork) == 0
	}, "given up")
}

func TestExpiredHintsAreDropped(t *testing.T) {
	b := newBed(t)
	late := newHint("late")
	late.ExpireTime = pastTimestamp()
	require.NoError(t, b.client.Publish(t.Context(), messaging.WorkBackupRun, late))
	b.publishHint("u1")
	seen := make(chan string, 9)
	b.consumeHints(messaging.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		seen <- h.GetUid()
		return messaging.Done()
	})
	require.Equal(t, "u1", <-seen)
	b.requireEventually(func() bool { return b.pendingMessages(messaging.StreamWork) == 0 }, "both gone")
	require.Zero(t, b.pendingMessages(messaging.StreamDead))
	require.Empty(t, seen)
}
