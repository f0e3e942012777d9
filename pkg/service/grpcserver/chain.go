package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"buf.build/go/protovalidate"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// chain makes the interceptors. Outermost first: calls are counted with the status that is
// returned, errors become statuses, then come authorization, the deadline and validation; panics
// are caught innermost, so that they too are counted and converted.
type chain struct {
	reports   reports
	log       *slog.Logger
	authorize Authorizer
	validator protovalidate.Validator
	timeout   time.Duration
	stopping  <-chan struct{} // closed when streams are to end
}

func (c chain) unary() []grpc.UnaryServerInterceptor {
	return append(c.reports.unary(),
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			resp, err := c.call(ctx, req, info.FullMethod, handler)
			return resp, c.toStatus(ctx, info.FullMethod, err)
		},
		recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(c.recovered)),
	)
}

func (c chain) call(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (any, error) {
	ctx, err := c.authorized(ctx, method)
	if err != nil {
		return nil, err
	}
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	if err := validate(c.validator, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (c chain) stream() []grpc.StreamServerInterceptor {
	return append(c.reports.stream(),
		func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			ctx, err := c.authorized(ss.Context(), info.FullMethod)
			if err == nil {
				err = c.follow(ctx, srv, ss, handler)
			}
			return c.toStatus(ss.Context(), info.FullMethod, err)
		},
		recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(c.recovered)),
	)
}

// errStopping has callers of streams call again: another replica may go on, or this one once
// it is back.
var errStopping = fmt.Errorf("the service is stopping: %w", errgrpc.ErrUnavailable)

// follow runs a stream until it ends or the server stops: it is unknown how long a stream would
// last.
func (c chain) follow(ctx context.Context, srv any, ss grpc.ServerStream, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-c.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	err := handler(srv, &checkedStream{ServerStream: ss, ctx: ctx, validator: c.validator})
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return errStopping
	}
	return err
}

// open reports which services answer without a token: probes and tools have none.
func open(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

func (c chain) authorized(ctx context.Context, method string) (context.Context, error) {
	if c.authorize == nil || open(method) {
		return ctx, nil
	}
	return c.authorize(ctx, method)
}

func (c chain) toStatus(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	st, internal := errgrpc.Status(err)
	if internal {
		c.log.ErrorContext(ctx, "call failed", "method", method, "error", err)
	}
	return st.Err()
}

var errPanicked = errors.New("handler panicked")

// recovered makes a panic an error that toStatus reports as INTERNAL.
func (c chain) recovered(ctx context.Context, value any) error {
	c.log.ErrorContext(ctx, "handler panicked", "panic", value, "stack", string(debug.Stack()))
	return errPanicked
}

// checkedStream validates every message a client sends.
type checkedStream struct {
	grpc.ServerStream
	ctx       context.Context //nolint:containedctx // grpc.ServerStream carries its context by design
	validator protovalidate.Validator
}

// Context is the stream's context as the authorizer returned it.
func (s *checkedStream) Context() context.Context { return s.ctx }

// RecvMsg receives the next message and refuses an invalid one.
func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return validate(s.validator, m)
}

// validate gives one FieldError per violated rule of the contract.
func validate(validator protovalidate.Validator, msg any) error {
	m, ok := msg.(proto.Message)
	if !ok {
		return nil
	}
	err := validator.Validate(m)
	violated := new(protovalidate.ValidationError)
	if err == nil || !errors.As(err, &violated) {
		return err
	}
	var fields []error
	for _, v := range violated.Violations {
		message := v.Proto.GetMessage()
		if message == "" {
			message = "breaks rule " + v.Proto.GetRuleId()
		}
		fields = append(fields, errgrpc.Field(protovalidate.FieldPathString(v.Proto.GetField()), "%s", message))
	}
	return errors.Join(fields...)
}
