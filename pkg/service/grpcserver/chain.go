package grpcserver

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"buf.build/go/protovalidate"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// interceptorChain makes the interceptors. Outermost first: calls are counted with the status that is
// returned, errors become statuses, then come authorization, the deadline and validation; panics
// are caught innermost, so that they too are counted and converted.
type interceptorChain struct {
	reports   reportInterceptors
	log       *slog.Logger
	authorize Authorizer
	audited   func(fullMethod string) bool
	clock     clock.WithTicker
	validator protovalidate.Validator
	stopping  <-chan struct{} // closed when streams are to end
}

func (c interceptorChain) unaryInterceptors() []grpc.UnaryServerInterceptor {
	return append(c.reports.unaryInterceptors(),
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			call := &auditedCall{method: info.FullMethod}
			resp, err := c.callUnary(ctx, req, call, handler)
			err = c.toStatus(ctx, info.FullMethod, err)
			c.auditCall(ctx, call, err)
			return resp, err
		},
		recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(c.recoveredError)),
	)
}

// callUnary answers a call within its deadline, which holds for its review too.
func (c interceptorChain) callUnary(ctx context.Context, req any, call *auditedCall, handler grpc.UnaryHandler) (any, error) {
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultUnaryTimeout)
		defer cancel()
	}
	if err := c.admitCall(ctx, call); err != nil {
		return nil, err
	}
	if err := validateMessage(c.validator, req); err != nil {
		return nil, err
	}
	call.noteRequest(req)
	return handler(context.WithValue(ctx, userKey{}, call.user), req)
}

func (c interceptorChain) streamInterceptors() []grpc.StreamServerInterceptor {
	return append(c.reports.streamInterceptors(),
		func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			ctx, call := ss.Context(), &auditedCall{method: info.FullMethod}
			if err = c.admitCall(ctx, call); err == nil {
				err = c.followStream(context.WithValue(ctx, userKey{}, call.user), srv, ss, call, handler)
			}
			err = c.toStatus(ctx, info.FullMethod, err)
			c.auditCall(ctx, call, err)
			return err
		},
		recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(c.recoveredError)),
	)
}

func (c interceptorChain) toStatus(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	st, internal := errgrpc.Status(err)
	if internal {
		c.log.ErrorContext(ctx, "Failed to handle gRPC call", "method", method, "error", err)
	}
	return st.Err()
}

var errPanicked = errors.New("handler panicked")

// recoveredError makes a panic an error that toStatus reports as INTERNAL.
func (c interceptorChain) recoveredError(ctx context.Context, value any) error {
	c.log.ErrorContext(ctx, "Handler of a gRPC call panicked", "panic", value, "stack", string(debug.Stack()))
	return errPanicked
}

// checkedStream validates every message a client sends.
type checkedStream struct {
	grpc.ServerStream
	ctx       context.Context //nolint:containedctx // grpc.ServerStream carries its context by design
	validator protovalidate.Validator
	call      *auditedCall
}

// Context is the stream's context as the authorizer returned it.
func (s *checkedStream) Context() context.Context { return s.ctx }

// RecvMsg receives the next message and refuses an invalid one.
func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if err := validateMessage(s.validator, m); err != nil {
		return err
	}
	s.call.noteRequest(m)
	return nil
}

// validateMessage gives one FieldError per violated rule of the contract.
func validateMessage(validator protovalidate.Validator, msg any) error {
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
