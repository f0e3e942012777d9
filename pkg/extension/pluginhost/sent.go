package pluginhost

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// callSending is what is known of a call while it is made.
type callSending struct {
	sent   atomic.Bool // the plugin may have seen the call
	plugin string      // its name; empty for a call about the process
}

// sendingKey is where a call's context holds its sending.
type sendingKey struct{}

func withSending(ctx context.Context, s *callSending) context.Context {
	return context.WithValue(ctx, sendingKey{}, s)
}

func sendingOf(ctx context.Context) *callSending {
	s, ok := ctx.Value(sendingKey{}).(*callSending)
	if !ok {
		return &callSending{}
	}
	return s
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
	sendingOf(ctx).sent.Store(true)
}

// TagConn changes nothing.
func (sentMarker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (sentMarker) HandleConn(context.Context, stats.ConnStats) {}
