package collect

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/stop"
)

// workers are the workers of a run, as the stages share them: a writer for each.
type workers struct {
	writers []*partwriter.Writer
	stop    stop.Signal
}

// flush makes durable what the workers did. The error is ErrStopped if the run was stopped.
func (c *workers) flush(ctx context.Context) error {
	err := panics.ForEach(ctx, len(c.writers), len(c.writers), func(_ context.Context, i int) error { return c.writers[i].Flush() })
	if err == nil && c.stop.Requested() {
		return ErrStopped
	}
	return err
}

// discard removes what is unfinished. It waits for uploads under way.
func (c *workers) discard() {
	for _, w := range c.writers {
		w.Discard()
	}
}
