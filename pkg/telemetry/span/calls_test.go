package span_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// method is a kind of call.
type method struct{ name string }

func (m method) SpanName() string { return m.name }

func (m method) SpanAttributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("rpc.method", m.name)}
}

// newRecording returns spans by their names, and a context with the span "job".
func newRecording(t *testing.T) (ctx context.Context, ended func() map[string][]sdktrace.ReadOnlySpan) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	ctx, job := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test").Start(t.Context(), "job")
	return ctx, func() map[string][]sdktrace.ReadOnlySpan {
		job.End()
		spans := map[string][]sdktrace.ReadOnlySpan{}
		for _, s := range recorder.Ended() {
			spans[s.Name()] = append(spans[s.Name()], s)
		}
		return spans
	}
}

func attributeMap(s sdktrace.ReadOnlySpan) map[string]any {
	found := map[string]any{}
	for _, kv := range s.Attributes() {
		found[string(kv.Key)] = kv.Value.AsInterface()
	}
	return found
}

// A hundred thousand items would be as many spans, and nobody finds anything among them.
func TestCallsOfOneKindAreOneSpan(t *testing.T) {
	ctx, ended := newRecording(t)
	const calls = 1000
	require.NoError(t, span.Do(ctx, "stage", func(ctx context.Context) error {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range calls / 4 {
					span.Begin(ctx, method{"Execute"}).End(nil)
				}
			})
		}
		span.Begin(ctx, method{"Init"}).End(nil)
		group.Wait()
		return nil
	}))
	spans := ended()
	require.Len(t, spans["Execute"], 1)
	require.Len(t, spans["Init"], 1)
	execute, stage := spans["Execute"][0], spans["stage"][0]
	require.Equal(t, stage.SpanContext().SpanID(), execute.Parent().SpanID())
	require.Equal(t, trace.SpanKindClient, execute.SpanKind())
	require.EqualValues(t, calls, attributeMap(execute)["holdfast.calls.count"])
	require.EqualValues(t, 0, attributeMap(execute)["holdfast.calls.failed"])
	require.Equal(t, "Execute", attributeMap(execute)["rpc.method"])
	require.Equal(t, codes.Unset, execute.Status().Code)
	require.False(t, execute.EndTime().After(stage.EndTime()))
}

func TestCallsThatFailedHaveSpansOfTheirOwn(t *testing.T) {
	ctx, ended := newRecording(t)
	require.NoError(t, span.Do(ctx, "stage", func(ctx context.Context) error {
		for i := range 50 {
			span.Begin(ctx, method{"Execute"}).End(nil)
			span.Begin(ctx, method{"Execute"}).End(fmt.Errorf("no %d", i), attribute.String("rpc.response.status_code", "UNAVAILABLE"))
		}
		span.Begin(ctx, method{"Init"}).End(errors.New("bad configuration"))
		return nil
	}))
	spans := ended()
	all := spans["Execute"]
	require.Len(t, all, 1+span.MaxOwn)
	of := all[len(all)-1]
	require.Equal(t, spans["stage"][0].SpanContext().SpanID(), of.Parent().SpanID())
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "50 of 100 calls failed, the first: no 0"}, of.Status())
	require.EqualValues(t, 50, attributeMap(of)["holdfast.calls.failed"])
	for i, own := range all[:span.MaxOwn] {
		require.Equal(t, of.SpanContext().SpanID(), own.Parent().SpanID())
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: fmt.Sprintf("no %d", i)}, own.Status())
		require.Equal(t, "UNAVAILABLE", attributeMap(own)["rpc.response.status_code"])
		require.Equal(t, "*errors.errorString", attributeMap(own)["error.type"])
	}
	require.Len(t, spans["Init"], 1, "one call needs no second span")
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "bad configuration"}, spans["Init"][0].Status())
}

func TestSlowCallsHaveSpansOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ended := newRecording(t)
		require.NoError(t, span.Do(ctx, "stage", func(ctx context.Context) error {
			for i := range 30 {
				call := span.Begin(ctx, method{"Execute"})
				if i%2 == 0 {
					time.Sleep(span.Slow)
				}
				call.End(nil)
			}
			call := span.Begin(ctx, method{"Compose"})
			time.Sleep(time.Minute)
			call.End(nil)
			time.Sleep(time.Hour)
			return nil
		}))
		spans := ended()
		all := spans["Execute"]
		require.Len(t, all, 1+span.MaxOwn)
		for _, own := range all[:span.MaxOwn] {
			require.Equal(t, span.Slow, own.EndTime().Sub(own.StartTime()))
		}
		of := all[len(all)-1]
		require.Equal(t, 15*span.Slow, of.EndTime().Sub(of.StartTime()), "to the end of the last call, not of the stage")
		require.InDelta(t, 15.0, attributeMap(of)["holdfast.calls.seconds"], 0.1)
		require.InDelta(t, 1.0, attributeMap(of)["holdfast.calls.longest_seconds"], 0.1)
		require.Len(t, spans["Compose"], 1, "one call needs no second span")
		require.Equal(t, time.Minute, spans["Compose"][0].EndTime().Sub(spans["Compose"][0].StartTime()))
	})
}

// What a stage opened may be used after it.
func TestACallOutlivesItsGroup(t *testing.T) {
	ctx, ended := newRecording(t)
	var open span.Call
	var stage context.Context
	require.NoError(t, span.Do(ctx, "stage", func(ctx context.Context) error {
		open, stage = span.Begin(ctx, method{"Get"}), ctx
		return nil
	}))
	open.End(errors.New("late"))
	late := span.Begin(stage, method{"Late"})
	require.Nil(t, late.Context())
	late.End(nil)
	spans := ended()
	require.Len(t, spans["Get"], 1)
	require.EqualValues(t, 1, attributeMap(spans["Get"][0])["holdfast.calls.count"])
	require.Empty(t, spans["Late"])
}

func TestCallsCostNothingWithoutTraces(t *testing.T) {
	contexts := map[string]context.Context{"no span": t.Context()}
	sampler := sdktrace.WithSampler(sdktrace.NeverSample())
	unsampled, s := sdktrace.NewTracerProvider(sampler).Tracer("test").Start(t.Context(), "job")
	defer s.End()
	contexts["not sampled"] = unsampled
	for name, ctx := range contexts {
		ctx, end := span.Group(ctx)
		require.Zero(t, testing.AllocsPerRun(100, func() { span.Begin(ctx, method{"Execute"}).End(nil) }), name)
		end()
	}
}
