package jobtest

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// Cancels stands in for the actions of operations that are cancelled. The zero value acknowledges
// every call. Safe for concurrent use.
type Cancels struct {
	// Answer answers a call; nil acknowledges it.
	Answer func(ctx context.Context, op action.Operation) (accepted bool, err error)

	mu    sync.Mutex
	calls []string
}

// Canceller returns what calls these actions.
func (c *Cancels) Canceller() *operation.Canceller {
	return &operation.Canceller{Actions: &operation.Actions{Shared: c, Homes: c}, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
}

// Calls returns the IDs of the operations that were called, sorted.
func (c *Cancels) Calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.calls))
}

// Cancel implements action.Operations.
func (c *Cancels) Cancel(ctx context.Context, op action.Operation, _ []byte, _ time.Duration) (bool, error) {
	c.mu.Lock()
	c.calls = append(c.calls, op.ID)
	c.mu.Unlock()
	if c.Answer == nil {
		return true, nil
	}
	return c.Answer(ctx, op)
}

// Progress implements action.Operations: the operation runs.
func (*Cancels) Progress(context.Context, action.Operation, []byte) (action.Progress, error) {
	return action.Progress{}, nil
}

// Logs implements action.Operations: there are none.
func (*Cancels) Logs(context.Context, action.Operation, []byte, time.Time, bool) iter.Seq2[action.LogLine, error] {
	return func(func(action.LogLine, error) bool) {}
}

// At implements operation.Homes.
func (c *Cancels) At(_, process string) action.Operations { return c }

// Forget implements operation.Homes.
func (c *Cancels) Forget(_ context.Context, _, _ string, op action.Operation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, op.ID+" forgotten")
	return nil
}
