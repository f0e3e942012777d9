package service

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

// calls is a kind of call: of one method of another instance of Holdfast's services.
type calls struct{ method, instance string }

// SpanName implements span.Kind: the name that the conventions for RPC have for a call.
func (c calls) SpanName() string { return c.method }

// SpanAttributes implements span.Kind.
func (c calls) SpanAttributes() []attribute.KeyValue {
	return []attribute.KeyValue{semconv.RPCSystemNameGRPC, semconv.RPCMethod(c.method), semconv.ServerAddress(c.instance)}
}

// traceInterceptor has spans show the calls of a connection to an instance, see [span.Begin], and passes their
// trace on. Streams are not shown.
func (r *Runtime) traceInterceptor(instance string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		call := span.Begin(ctx, calls{strings.TrimPrefix(method, "/"), instance})
		if call.Context() == nil {
			return next(ctx, method, request, answer, conn, opts...)
		}
		carrier := propagation.MapCarrier{}
		r.base.Propagator.Inject(call.Context(), carrier)
		var pairs []string
		for key, value := range carrier {
			pairs = append(pairs, key, value)
		}
		ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
		err := next(ctx, method, request, answer, conn, opts...)
		call.End(err, semconv.RPCResponseStatusCode(code.Code(status.Code(err)).String()))
		return err
	}
}
