package pluginhost

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// sentKey is where a call's context holds whether the plugin may have seen the call.
type sentKey struct{}

func withSent(ctx context.Context, sent *atomic.Bool) context.Context {
	return context.WithValue(ctx, sentKey{}, sent)
}

// sentMarker notes when gRPC hands a call to the connection. Before that, such as while there is no
// connection or no stream to spare, the plugin has not received it.
type sentMarker struct{}

// TagRPC changes nothing.
func (sentMarker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC notes the event that matters.
func (sentMarker) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, out := event.(*stats.OutHeader); !out {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

// TagConn changes nothing.
func (sentMarker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (sentMarker) HandleConn(context.Context, stats.ConnStats) {}
