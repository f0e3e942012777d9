package actions

import (
	"context"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// CallerConfig is what actions are called with.
type CallerConfig struct {
	Recorder *outcome.Recorder
	History  *outcome.History
	// Restore is the Restore as actions get it.
	Restore *action.Restore
	// Confirm is called before each call, which does not take place after an error. Nil allows all.
	Confirm func(ctx context.Context) error
	// IsProcessCrash and IsNotSent are those of effect.Config.
	IsProcessCrash func(error) bool
	IsNotSent      func(error) bool
	Stop           object.StopSignal
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
	CallerConfig
	calls *effect.Caller
}

// NewCaller returns a caller. What earlier holders began is in the recorder before.
func NewCaller(cfg CallerConfig) *Caller {
	operations := &operation.Counter{}
	for _, o := range cfg.Recorder.Operations() {
		operations.AddOperation(len(o.PostOperation))
	}
	return &Caller{CallerConfig: cfg, calls: effect.NewCaller(effect.Config{
		IsProcessCrash: cfg.IsProcessCrash, IsNotSent: cfg.IsNotSent, Operations: operations,
	})}
}

// CallRequest is a call of an action about one object.
type CallRequest struct {
	Action action.RestoreItem
	Node   int32
	// Object is as the actions before left it, Stored as it was backed up.
	Object, Stored *action.Object
}

// Execute calls an action, and repeats a call whose process died. One that may begin an operation is
// made once, and repeated only if it carries an idempotency key.
func (c *Caller) Execute(ctx context.Context, q CallRequest) (action.RestoreResult, error) {
	if begins, ok := q.Action.(action.RestoreOperations); ok {
		return c.callOnce(ctx, q, begins.OperationKind())
	}
	return effect.Retry(ctx, c.calls, func(ctx context.Context) (action.RestoreResult, error) { return c.callAction(ctx, q) })
}

// callAction makes one call.
func (c *Caller) callAction(ctx context.Context, q CallRequest) (action.RestoreResult, error) {
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
