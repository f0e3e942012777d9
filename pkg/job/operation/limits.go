package operation

import (
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
)

const (
	// MaxOperations is how many operations the actions of a job begin at most.
	MaxOperations = 10_000
	// MaxPostItems is how many post-operation items an operation has at most.
	MaxPostItems = 1_000
	// MaxJobPostItems is how many post-operation items all operations of a job have at most.
	MaxJobPostItems = 100_000
)

// ErrFull means that a job has as many operations as it may have.
var ErrFull = fmt.Errorf("%w: the job has %d operations, and no more are begun", journal.ErrDocumentTooLarge, MaxOperations)

// Counter counts the operations of a job while its actions begin them. The zero value has counted
// none. Safe for concurrent use.
type Counter struct {
	mu                sync.Mutex
	operations, items int
}

// AddOperation counts an operation, beyond the limit too: an earlier holder of the job began it, or may
// have.
func (c *Counter) AddOperation(postItems int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations++
	c.items += postItems
}

// ReserveOperation counts an operation that a call may begin. With ErrFull it is not counted, and the
// call must not be made.
func (c *Counter) ReserveOperation() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.operations >= MaxOperations {
		return ErrFull
	}
	c.operations++
	return nil
}

// ReleaseOperation counts one operation less: the call has begun none.
func (c *Counter) ReleaseOperation() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations--
}

// AddPostItems counts the post-operation items of one operation. With an error, which wraps
// document.ErrDocumentTooLarge, they are not counted.
func (c *Counter) AddPostItems(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case n > MaxPostItems:
		return fmt.Errorf("%w: the operation has %d post-operation items, at most %d are possible", journal.ErrDocumentTooLarge, n, MaxPostItems)
	case c.items+n > MaxJobPostItems:
		return fmt.Errorf("%w: the operations of the job have more than %d post-operation items", journal.ErrDocumentTooLarge, MaxJobPostItems)
	}
	c.items += n
	return nil
}
