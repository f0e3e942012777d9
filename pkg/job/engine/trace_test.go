package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func newRecordedTracer() (*tracetest.SpanRecorder, trace.Tracer) {
	recorder := tracetest.NewSpanRecorder()
	return recorder, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
}

func TestAnAttemptContinuesTheTraceNotedOnTheJob(t *testing.T) {
	inBubble(t, func(b *bed) {
		const id = "0af7651916cd43dd8448eb211c80319c"
		recorder, tracer := newRecordedTracer()
		b.createJob("j", phaseNew)
		b.editJob("j", func(o *job) {
			o.Annotations = map[string]string{messaging.AnnotationTrace: "00-" + id + "-b7ad6b7169203331-01"}
		})
		broken := &kind{run: func(context.Context, *engine.Held[*job]) error { return errors.New("the API server is away") }}
		one := b.startReplica("one", broken, func(c *engine.Config[*job]) { c.Tracer = tracer })
		b.advanceClock(time.Second)
		one.stop()
		spans := recorder.Ended()
		require.NotEmpty(b, spans)
		s := spans[0]
		require.Equal(b, "backup", s.Name())
		require.Equal(b, id, s.SpanContext().TraceID().String())
		require.Equal(b, "b7ad6b7169203331", s.Parent().SpanID().String())
		require.Contains(b, s.Attributes(), attribute.Int64("holdfast.claim.epoch", 1))
		require.Contains(b, s.Attributes(), attribute.String("holdfast.object.uid", "j-uid"))
		require.Equal(b, sdktrace.Status{Code: codes.Error, Description: "the API server is away"}, s.Status())
		require.Contains(b, b.log.String(), "traceId="+id)
	})
}

// Every attempt at a deletion was a trace of its own: no queue admits one and notes a trace.
func TestTheFirstClaimOfAJobNotesItsTrace(t *testing.T) {
	inBubble(t, func(b *bed) {
		_, tracer := newRecordedTracer()
		one := b.startReplica("one", &kind{}, func(c *engine.Config[*job]) { c.Tracer = tracer })
		b.bus.Down(true)
		b.createJob("j", phaseNew)
		ctx, s := tracer.Start(b.Context(), "process")
		one.engine.Handle(ctx, &workv1.Hint{Kind: "ConfigMap", Namespace: namespace, Name: "j", Uid: "j-uid"})
		require.Contains(b, b.getJob("j").Annotations[messaging.AnnotationTrace], s.SpanContext().TraceID().String())
	})
}

// What a dead holder's attempt has in a trace was connected with nothing that came after it.
func TestAnAttemptThatTakesOverIsLinkedToTheOneBefore(t *testing.T) {
	inBubble(t, func(b *bed) {
		recorder, tracer := newRecordedTracer()
		traced := func(c *engine.Config[*job]) { c.Tracer = tracer }
		one := b.startReplica("one", &kind{run: func(ctx context.Context, _ *engine.Held[*job]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}, traced)
		b.bus.Down(true) // no hint has the trace
		b.createJob("j", phaseNew)
		b.requireRunsAfter(engine.Period, "one/j@1")
		noted := b.getJob("j").Annotations
		b.startReplica("two", &kind{}, traced)
		one.kill()
		b.requireRunsAfter(2*timeout, "one/j@1", "two/j@2")
		require.Equal(b, phaseDone, jobPhase(b.getJob("j")))

		spans := recorder.Ended()
		require.Len(b, spans, 1, "the dead end no span")
		s := spans[0]
		require.Contains(b, s.Attributes(), attribute.Int64("holdfast.claim.epoch", 2))
		require.Len(b, s.Links(), 1)
		before := s.Links()[0].SpanContext
		require.Equal(b, s.SpanContext().TraceID(), before.TraceID(), "one trace, also without a hint")
		require.NotEqual(b, s.SpanContext().SpanID(), before.SpanID())
		require.Contains(b, noted[messaging.AnnotationAttempt], before.SpanID().String())
		require.Contains(b, b.getJob("j").Annotations[messaging.AnnotationAttempt], s.SpanContext().SpanID().String(), "for the next")
	})
}

// A copy of a job, such as one that a user made of its YAML, is no later attempt at it.
func TestAnAttemptIsNotLinkedToAnotherTrace(t *testing.T) {
	inBubble(t, func(b *bed) {
		recorder, tracer := newRecordedTracer()
		b.createJob("j", phaseNew)
		b.editJob("j", func(o *job) {
			o.Annotations = map[string]string{messaging.AnnotationAttempt: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
		})
		one := b.startReplica("one", &kind{}, func(c *engine.Config[*job]) { c.Tracer = tracer })
		b.advanceClock(engine.Period)
		one.stop()
		require.Len(b, recorder.Ended(), 1)
		require.Empty(b, recorder.Ended()[0].Links())
	})
}

func TestWithoutTracesNothingIsNoted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob("j", phaseNew)
		one := b.startReplica("one", &kind{}, nil)
		b.advanceClock(engine.Period)
		one.stop()
		require.Equal(b, phaseDone, jobPhase(b.getJob("j")))
		require.NotContains(b, b.getJob("j").Annotations, messaging.AnnotationAttempt)
		require.NotContains(b, b.getJob("j").Annotations, messaging.AnnotationTrace)
	})
}
