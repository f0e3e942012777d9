package finalize

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/job/step"
)

// Step is one step to the end of a backup.
type Step = step.Step[*State]

// Run takes the steps in their order, as step.Runner does. A list that ends since the backup is committed already is no error:
// State.Final is how.
func (s *State) Run(ctx context.Context, steps []Step) error { return s.steps.Run(ctx, steps) }

// isWaiting reports that the backup waits for its operations.
func isWaiting(err error) bool {
	var waits *WaitingError
	return errors.As(err, &waits)
}

// outranksCancel reports an error that counts although the backup is asked to stop: an earlier holder recorded a failure, or
// this one stops.
func outranksCancel(ctx context.Context, err error) bool {
	var known *recordedError
	return errors.As(err, &known) || Stopped(ctx, err)
}
