// Package call calls restore item actions, if the restore is still this process's: an action may
// have effects elsewhere, which nothing fences.
package call

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// maxRetries is how often a call is repeated whose process died.
const maxRetries = 2

// Config is what actions are called with.
type Config struct {
	Recorder *outcome.Recorder
	History  *outcome.History
	// Restore is the Restore as actions get it.
	Restore *action.Restore
	// Confirm is called before each call, which does not take place after an error. Nil allows all.
	Confirm func(ctx context.Context) error
	// Collateral reports whether a call may have failed because another one ended the plugin process
	// of both: the call is repeated then. Nil is always false.
	IsProcessCrash func(error) bool
	// Unsent reports whether an error means that the call was certainly not made. Nil is always false.
	IsNotSent func(error) bool
	Stop      object.StopSignal
	// Plan and Target name the objects of operations.
	Plan   *plan.Plan
	Target func(node int32) apply.Target
	// Unrecorded is set if the location cannot be written: operations are not supported then.
	Unrecorded bool
	// Instance is the runner's, which operations in processes of plugins live with.
	Instance string
	Clock    clock.PassiveClock
}

// Caller calls the actions of a restore. Safe for concurrent use.
type Caller struct {
	Config
	retrying   chan struct{}     // holds one value while a call is retried
	operations operation.Counter // of all holders
}

// New returns a caller. What earlier holders began is in the recorder before.
func New(cfg Config) *Caller {
	c := &Caller{Config: cfg, retrying: make(chan struct{}, 1)}
	for _, o := range cfg.Recorder.Operations() {
		c.operations.AddOperation(len(o.PostOperation))
	}
	return c
}

// Request is a call of an action about one object.
type Request struct {
	Action action.RestoreItem
	Node   int32
	// Object is as the actions before left it, Stored as it was backed up.
	Object, Stored *action.Object
}

// Execute calls an action. A call whose process died is repeated, one such call at a time, so that
// in the end it costs the object that is to blame, and others only where several are. One that may
// begin an operation is not, unless it carries an idempotency key.
func (c *Caller) Execute(ctx context.Context, q Request) (action.RestoreResult, error) {
	if begins, ok := q.Action.(action.RestoreOperations); ok {
		return c.callOnce(ctx, q, begins.OperationKind())
	}
	return c.callRetryable(ctx, q)
}

// callRetryable makes a call, again where its process died.
func (c *Caller) callRetryable(ctx context.Context, q Request) (action.RestoreResult, error) {
	result, err := c.callAction(ctx, q)
	for range maxRetries {
		if err == nil || ctx.Err() != nil || c.IsProcessCrash == nil || !c.IsProcessCrash(err) {
			return result, err
		}
		result, err = c.retryAlone(ctx, q)
	}
	return result, err
}

func (c *Caller) retryAlone(ctx context.Context, q Request) (action.RestoreResult, error) {
	select {
	case c.retrying <- struct{}{}:
	case <-ctx.Done():
		return action.RestoreResult{}, context.Cause(ctx)
	}
	defer func() { <-c.retrying }()
	return c.callAction(ctx, q)
}

// callAction makes one call.
func (c *Caller) callAction(ctx context.Context, q Request) (action.RestoreResult, error) {
	if err := c.confirmClaim(ctx); err != nil {
		return action.RestoreResult{}, err
	}
	return q.Action.Execute(ctx, q.Object, q.Stored, c.Restore)
}

func (c *Caller) confirmClaim(ctx context.Context) error {
	if c.Confirm == nil {
		return nil
	}
	return c.Confirm(ctx)
}
