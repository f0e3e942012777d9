package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// operationsGrace is how long the records of operations that have not ended stay after their job: with
// them async-operation-monitor cancels the operations, which it tries for an hour.
const operationsGrace = 2 * time.Hour

// ended is behind the name of a directory in the times since when its job has ended, and not been gone.
const ended = " (ended)"

// areRecordsOver reports whether a job that has ended, or is gone, needs the records of its operations no more:
// none of them is left to be cancelled, or that has been so for operationsGrace, counted for what is
// named as.
func (p *sweepPass) areRecordsOver(ctx context.Context, job operation.Job, as string) (bool, error) {
	long := p.goneFor(as, max(operationsGrace, p.sweeper.Grace)) // noted whatever the bucket answers
	log, err := operation.Open(ctx, p.store, job)
	switch {
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, operation.ErrDamaged): // nothing is cancelled by these
		return true, nil
	case err != nil:
		return false, err
	}
	return long || log.Ended(), nil
}
