package collect

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// partWriters are the workers of a run, as the stages share them: a writer for each.
type partWriters struct {
	writers []*partwriter.Writer
	stop    plan.StopSignal
}

// flushWriters makes durable what the workers did. The error is ErrStopped if the run was stopped.
func (c *partWriters) flushWriters(ctx context.Context) error {
	err := panics.ForEach(ctx, len(c.writers), len(c.writers), func(_ context.Context, i int) error { return c.writers[i].Flush() })
	if err == nil && c.stop.Requested() {
		return ErrStopped
	}
	return err
}

// discardUnfinished removes what is unfinished. It waits for uploads under way.
func (c *partWriters) discardUnfinished() {
	for _, w := range c.writers {
		w.Discard()
	}
}
