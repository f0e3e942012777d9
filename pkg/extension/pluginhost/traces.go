package pluginhost

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// callKind is a kind of call: of one method of one plugin.
type callKind struct {
	method string // with its service
	plugin string
	binary string
}

// SpanName implements span.Kind: the name that the conventions for RPC have for a call.
func (c callKind) SpanName() string { return c.method }

// SpanAttributes implements span.Kind. The server's address is the binary's name: the socket has
// another path in every process.
func (c callKind) SpanAttributes() []attribute.KeyValue {
	found := []attribute.KeyValue{semconv.RPCSystemNameGRPC, semconv.RPCMethod(c.method), semconv.ServerAddress(c.binary)}
	if c.plugin != "" {
		found = append(found, attribute.String("holdfast.plugin.name", c.plugin))
	}
	return found
}

// traceCall has spans show a call, see [span.Begin], and passes their trace on in the call's metadata
// (W3C Trace Context). It shows the call as the connection has it: the wait for a process and
// what is made of the answer are not part of it. Streams are not shown.
func (p *process) traceCall(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call := span.Begin(ctx, callKind{strings.TrimPrefix(method, "/"), sendingOf(ctx).plugin, p.spec.binaryName()})
	if call.Context() == nil {
		return next(ctx, method, request, answer, conn, opts...)
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(call.Context(), carrier)
	var pairs []string
	for key, value := range carrier {
		pairs = append(pairs, key, value)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
	err := next(ctx, method, request, answer, conn, opts...)
	failed := err
	if err != nil {
		failed = convertStatus(err)
		if ctx.Err() != nil {
			failed = contextCause(ctx)
		}
	}
	call.End(failed, semconv.RPCResponseStatusCode(code.Code(status.Code(err)).String()))
	return err
}
