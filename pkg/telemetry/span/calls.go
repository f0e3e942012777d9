package span

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"
)

const (
	// Slow is the time from which on a call is a span of its own.
	Slow = time.Second
	// MaxOwn bounds the calls of one kind within one group that are spans of their own, each for the
	// slow ones and for those that failed.
	MaxOwn = 8
)

// Kind is a kind of call to another system, such as one method of one plugin. Values that are equal
// are one kind. There must be few: each is a span in every group with a call of it.
type Kind interface {
	comparable
	// SpanName is the name of its spans.
	SpanName() string
	// SpanAttributes are the attributes of its spans.
	SpanAttributes() []attribute.KeyValue
}

// groupKey is where a context has its group.
type groupKey struct{}

// callGroup makes spans of the calls within one span. All calls of one kind are one child, from the
// begin of the first to the end of the last: the number of items of a job does not change how
// many spans there are.
type callGroup struct {
	parent context.Context //nolint:containedctx // of the children, as long as the span
	clock  clock.PassiveClock

	mu    sync.Mutex
	kinds map[any]*kindCalls
	ended bool
}

// Group prepares the span that ctx has for calls, and returns what ends the spans of these; that is
// called before the span ends. For a span that is not recorded it does nothing.
func Group(ctx context.Context) (context.Context, func()) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, func() {}
	}
	// The SDK's clock, which its spans have their times from, is the machine's.
	g := &callGroup{parent: ctx, clock: clock.RealClock{}, kinds: map[any]*kindCalls{}}
	return context.WithValue(ctx, groupKey{}, g), g.endSpans
}

// endSpans ends the spans of all kinds. Calls that go on change them no more.
func (g *callGroup) endSpans() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	for _, c := range g.kinds {
		c.endCalls()
	}
}

// kindCalls are those of one kind in a group, which has the lock.
type kindCalls struct {
	group      *callGroup
	name       string
	attributes []attribute.KeyValue
	ctx        context.Context //nolint:containedctx // has span
	span       trace.Span

	begun, failed  int64
	total, longest time.Duration
	last           time.Time // end of one
	slowSpans      int
	failedSpans    int
	firstError     error
	alone          *endedCall // the only call so far
}

// endedCall is a call that ended.
type endedCall struct {
	began, at time.Time
	err       error
	failure   []attribute.KeyValue
}

// Call is a call that was begun. The zero value is one that no span shows.
type Call struct {
	calls *kindCalls
	began time.Time
}

// Begin begins a call of a kind, for the innermost group of ctx. Without one it does nothing and
// allocates nothing. Safe for concurrent use.
func Begin[K Kind](ctx context.Context, kind K) Call {
	g, ok := ctx.Value(groupKey{}).(*callGroup)
	if !ok {
		return Call{}
	}
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return Call{}
	}
	c := g.kinds[kind]
	if c == nil {
		c = &kindCalls{group: g, name: kind.SpanName(), attributes: kind.SpanAttributes(), last: now}
		c.ctx, c.span = tracerOf(g.parent).Start(g.parent, c.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(now), trace.WithAttributes(c.attributes...))
		g.kinds[kind] = c
	}
	if c.begun++; c.alone != nil {
		c.showCall(c.alone)
		c.alone = nil
	}
	return Call{c, now}
}

// Context returns the context that has the span of the call's kind, nil if no span shows the call.
func (c Call) Context() context.Context {
	if c.calls == nil {
		return nil
	}
	return c.calls.ctx
}

// End ends the call; unless err is nil it failed. It is called once.
func (c Call) End(err error, failure ...attribute.KeyValue) {
	if c.calls == nil {
		return
	}
	now := c.calls.group.clock.Now()
	c.calls.group.mu.Lock()
	defer c.calls.group.mu.Unlock()
	if !c.calls.group.ended {
		c.calls.noteCall(&endedCall{began: c.began, at: now, err: err, failure: failure})
	}
}

// noteCall counts a call that ended. One that is alone may stay so: then the span of the kind is its own.
func (c *kindCalls) noteCall(one *endedCall) {
	took := one.at.Sub(one.began)
	c.total += took
	c.longest = max(c.longest, took)
	if one.at.After(c.last) {
		c.last = one.at
	}
	if one.err != nil {
		if c.failed++; c.firstError == nil {
			c.firstError = one.err
			c.span.SetAttributes(one.failure...)
		}
	}
	if c.begun == 1 {
		c.alone = one
		return
	}
	c.showCall(one)
}

// showCall makes a span of a call that failed or was slow, unless enough of them have one.
func (c *kindCalls) showCall(one *endedCall) {
	spans := &c.slowSpans
	if one.err != nil {
		spans = &c.failedSpans
	} else if one.at.Sub(one.began) < Slow {
		return
	}
	if *spans == MaxOwn {
		return
	}
	*spans++
	_, own := tracerOf(c.ctx).Start(c.ctx, c.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(one.began), trace.WithAttributes(c.attributes...))
	own.SetAttributes(one.failure...)
	failSpan(own, one.err)
	own.End(trace.WithTimestamp(one.at))
}

// endCalls ends the span of the kind. It failed where a call did, also if that was repeated with success.
func (c *kindCalls) endCalls() {
	c.span.SetAttributes(
		attribute.Int64("holdfast.calls.count", c.begun),
		attribute.Int64("holdfast.calls.failed", c.failed),
		attribute.Float64("holdfast.calls.seconds", c.total.Seconds()),
		attribute.Float64("holdfast.calls.longest_seconds", c.longest.Seconds()),
	)
	failSpan(c.span, c.firstError)
	if c.failed > 0 && c.begun > 1 {
		c.span.SetStatus(codes.Error, fmt.Sprintf("%d of %d calls failed, the first: %s", c.failed, c.begun, c.firstError))
	}
	c.span.End(trace.WithTimestamp(c.last))
}
