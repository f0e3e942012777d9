package app

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// errUnreachable says nothing of an operation, which goes on until its timeout.
var errUnreachable = errors.New("plugins cannot be asked about operations yet")

// unreachable are actions that cannot be asked about their operations.
type unreachable struct{}

// Progress implements action.Operations.
func (unreachable) Progress(context.Context, action.Operation, []byte) (action.Progress, error) {
	return action.Progress{}, errUnreachable
}

// Cancel implements action.Operations.
func (unreachable) Cancel(context.Context, action.Operation, []byte, time.Duration) (bool, error) {
	return false, errUnreachable
}

// Logs implements action.Operations.
func (unreachable) Logs(context.Context, action.Operation, []byte, time.Time, bool) iter.Seq2[action.LogLine, error] {
	return func(yield func(action.LogLine, error) bool) { yield(action.LogLine{}, errUnreachable) }
}
