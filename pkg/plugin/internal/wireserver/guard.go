package wireserver

import (
	"context"
	"errors"
	"runtime"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// maxFrames of a panic's stack are sent.
const maxFrames = 64

// guardUnary turns a panic into the status that Velero knows for it, and our errors into theirs.
func guardUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if what := recover(); what != nil {
			resp, err = nil, panicError(what)
		}
	}()
	resp, err = next(ctx, req)
	return resp, statusOf(err)
}

func guardStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = panicError(what)
		}
	}()
	return statusOf(next(srv, stream))
}

// What makes an unknown operation different from anything else that is not found: a plugin may pass
// on a status of its own.
const (
	reasonDomain      = "holdfast.io"
	reasonNoOperation = "OPERATION_UNKNOWN"
)

func statusOf(err error) error {
	if !errors.Is(err, plugin.ErrNoOperation) {
		return err
	}
	st := status.New(codes.NotFound, err.Error())
	if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reasonNoOperation, Domain: reasonDomain}); err == nil {
		st = detailed
	}
	return st.Err()
}

// panicError is called by a deferred function while the stack of the panic is still there.
func panicError(what any) error {
	pcs := make([]uintptr, maxFrames)
	const above = 4 // runtime.Callers, this function, the deferred one, runtime.gopanic
	frames := runtime.CallersFrames(pcs[:runtime.Callers(above, pcs)])
	stack := &velero.Stack{}
	for {
		frame, more := frames.Next()
		stack.Frames = append(stack.Frames, &velero.StackFrame{File: frame.File, Line: int32(min(frame.Line, 1<<30)), Function: frame.Function})
		if !more {
			break
		}
	}
	st := status.Newf(codes.Aborted, "plugin panicked: %v", what)
	if detailed, err := st.WithDetails(stack); err == nil {
		st = detailed
	}
	return st.Err()
}
