package effect

import (
	"cmp"
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// maxRetries is how often a call is repeated whose process died.
const maxRetries = 2

// Config is what calls are made with.
type Config struct {
	// IsProcessCrash reports whether a call may have failed because another one ended the plugin process
	// of both: the call is repeated then. Nil is always false.
	IsProcessCrash func(error) bool
	// IsNotSent reports whether an error means that the call was certainly not made. Nil is always false.
	IsNotSent func(error) bool
	// Stopped reports that the job stops: no call is repeated then. Nil is always false.
	Stopped func() bool
	// Operations counts those of all holders of the job.
	Operations *operation.Counter
}

// Caller makes the calls of one job. Safe for concurrent use.
type Caller struct {
	Config
	retrying chan struct{} // holds one value while a call is repeated
}

// NewCaller returns a caller.
func NewCaller(cfg Config) *Caller { return &Caller{Config: cfg, retrying: make(chan struct{}, 1)} }

// Call is a call that may begin an operation.
type Call[R any] struct {
	// Name is how errors name the call.
	Name string
	// Announced reports that an earlier holder announced the call. It has no answer.
	Announced bool
	// Repeatable reports that the call carries an idempotency key.
	Repeatable bool
	// Announce makes durable that the call is made.
	Announce func(ctx context.Context) error
	// Withdraw records that the call was not made, so that the next holder makes it.
	Withdraw func()
	// Make makes the call.
	Make func(ctx context.Context) (R, error)
	// Began reports whether the result names an operation.
	Began func(result *R) bool
}

// Once makes a call. What it began counts among the operations of the job, of which there are at most
// operation.MaxOperations: no further call is made. Without ended there is no answer to record: the
// call was not made, or ctx has ended and it is not known whether it was.
func Once[R any](ctx context.Context, c *Caller, call *Call[R]) (result R, ended bool, err error) {
	if call.Announced {
		c.Operations.AddOperation(0) // the earlier holder reserved it
	} else if err := c.Operations.ReserveOperation(); err != nil {
		return result, false, fmt.Errorf("%s: the call is not made, since it may begin an operation: %w", call.Name, err)
	}
	defer func() {
		if !call.Began(&result) {
			c.Operations.ReleaseOperation()
		}
	}()
	if !call.Announced {
		if err := cmp.Or(call.Announce(ctx), ctx.Err()); err != nil {
			call.Withdraw()
			return result, false, err
		}
	}
	if call.Repeatable {
		result, err = Retry(ctx, c, call.Make)
	} else {
		result, err = call.Make(ctx)
	}
	switch {
	case err != nil && c.IsNotSent != nil && c.IsNotSent(err):
		call.Withdraw()
		return result, false, err
	case err != nil && ctx.Err() != nil && !call.Began(&result):
		return result, false, err
	}
	return result, true, err
}

// Retry makes a call, and repeats it where its process died, one such call at a time: in the end it
// costs the object that is to blame, and others only where several are. Only calls that are repeated
// wait for that.
func Retry[R any](ctx context.Context, c *Caller, call func(context.Context) (R, error)) (R, error) {
	result, err := call(ctx)
	for range maxRetries {
		if err == nil || !c.isProcessCrash(ctx, err) {
			return result, err
		}
		result, err = retryAlone(ctx, c, call)
	}
	return result, err
}

// isProcessCrash reports whether a call failed because a process died, and may be repeated.
func (c *Caller) isProcessCrash(ctx context.Context, err error) bool {
	stopped := ctx.Err() != nil || c.Stopped != nil && c.Stopped()
	return !stopped && c.IsProcessCrash != nil && c.IsProcessCrash(err)
}

func retryAlone[R any](ctx context.Context, c *Caller, call func(context.Context) (R, error)) (result R, err error) {
	select {
	case c.retrying <- struct{}{}:
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
	defer func() { <-c.retrying }()
	return call(ctx)
}
