package collect

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/nativesnapshot"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// intents are what is about to be done and cannot be taken back. They go into one
// record.
type intents struct {
	calls     []checkpoint.Call
	snapshots []nativesnapshot.Snapshot
	done      chan struct{}
	err       error // valid when done
}

// intend makes durable that what add adds is about to be done. While one record is
// written intents gather for the next, so that those in flight share one. It does
// not end with the lists: a record that may be there or not would cost the object.
func (r *run) intend(ctx context.Context, add func(*intents)) error {
	c := &r.calls
	mine, first := c.gather(add)
	if first {
		c.writing.Lock()
		closed := c.close()
		rec := checkpoint.Record{Intents: closed.calls, Intended: closed.snapshots}
		var upTo int
		rec.Outcomes, upTo = c.outcomes()
		if _, mine.err = r.records.Append(ctx, rec); mine.err == nil {
			c.recorded(upTo)
		}
		c.writing.Unlock()
		close(mine.done)
	}
	<-mine.done
	return mine.err
}

// gather adds intents to those of the next record, which the first is to write.
func (c *calls) gather(add func(*intents)) (mine *intents, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first = c.next == nil; first {
		c.next = &intents{done: make(chan struct{})}
	}
	add(c.next)
	return c.next, first
}

// close returns what gathered.
func (c *calls) close() *intents {
	c.mu.Lock()
	defer c.mu.Unlock()
	closed := c.next
	c.next = nil
	return closed
}
