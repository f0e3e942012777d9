package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

const (
	// ReviewLimit is how long the Authorizer may take for a call.
	ReviewLimit = 10 * time.Second
	// StreamReviewInterval is how often the Authorizer reviews an open stream: for so long, and for
	// as long as it uses an answer again, a revoked right still works there.
	StreamReviewInterval = 2 * time.Minute
	// streamReviews is how many of these may have no answer in a row before the stream ends.
	streamReviews = 3
)

// Authorizer decides whether a call may go on, and returns the user who calls, empty when that is
// not known. It may return one with an error too. Errors are those of package errgrpc. Health checks and
// reflection are not asked about. It must be safe for concurrent use.
type Authorizer func(ctx context.Context, fullMethod string) (user string, err error)

type userKey struct{}

// UserFrom is the name of the user whose call ctx belongs to; empty when it is not known.
func UserFrom(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

// isOpenMethod reports which services answer without a token: probes and tools have none.
func isOpenMethod(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

// reviewCaller asks the Authorizer, within a limit. A panic there is no answer: streams are reviewed on a
// goroutine of their own, where it would end the process.
func (c interceptorChain) reviewCaller(ctx context.Context, method string) (user string, err error) {
	if c.authorize == nil || isOpenMethod(method) {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, ReviewLimit)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			c.log.ErrorContext(ctx, "Review of the caller panicked", "panic", value, "stack", string(debug.Stack()))
			user, err = "", fmt.Errorf("review of the caller: %w", errgrpc.ErrUnavailable)
		}
	}()
	return c.authorize(ctx, method)
}

// admitCall reviews a call before anything is done for it, and notes the outcome for the audit log.
func (c interceptorChain) admitCall(ctx context.Context, call *auditedCall) (err error) {
	call.user, err = c.reviewCaller(ctx, call.method)
	call.allowed = err == nil
	return err
}

// Why streams end.
var (
	// errStopping has callers of streams call again: another replica may go on, or this one once
	// it is back.
	errStopping = fmt.Errorf("the service is stopping: %w", errgrpc.ErrUnavailable)
	// errHandled is why a stream ends that its handler has ended.
	errHandled = errors.New("handled")
)

// followStream runs a stream until it ends, the server stops, or its caller may no longer follow it: it is
// unknown how long a stream would last.
func (c interceptorChain) followStream(ctx context.Context, srv any, ss grpc.ServerStream, call *auditedCall, handler grpc.StreamHandler) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(errHandled)
	go func() { end(c.watchAccess(ctx, call.method)) }()
	err := handler(srv, &checkedStream{ServerStream: ss, ctx: ctx, validator: c.validator, call: call})
	if cause := context.Cause(ctx); errors.Is(cause, errStopping) && err != nil || errors.As(cause, new(*deniedError)) {
		return cause
	}
	return err
}

// watchAccess returns why a stream has to end, once it has.
func (c interceptorChain) watchAccess(ctx context.Context, method string) error {
	reviews := c.clock.NewTicker(StreamReviewInterval)
	defer reviews.Stop()
	unanswered := 0
	for {
		select {
		case <-c.stopping:
			return errStopping
		case <-ctx.Done():
			return ctx.Err()
		case <-reviews.C():
		}
		_, err := c.reviewCaller(ctx, method)
		denied := errors.Is(err, errgrpc.ErrForbidden) || errors.Is(err, errgrpc.ErrUnauthenticated)
		switch {
		case err == nil:
			unanswered = 0
		case denied || unanswered+1 == streamReviews:
			return &deniedError{err}
		default:
			unanswered++
		}
	}
}

// deniedError ends a stream whose caller is not known to have the right any more.
type deniedError struct{ err error }

func (e *deniedError) Error() string { return "the stream may not go on: " + e.err.Error() }

func (e *deniedError) Unwrap() error { return e.err }
