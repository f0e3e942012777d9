package itemaction

import (
	"errors"
	"fmt"
	"sync"
)

// ErrBusy means that as many deletions wait for a plugin as may. Nothing failed: this one is to
// come again.
var ErrBusy = errors.New("works for other deletions")

// Calls bounds how many deletions call one plugin at once, so that one that hangs does not collect
// all of them. It is safe for concurrent use; a nil *Calls has no bound.
type Calls struct {
	// Limit is how many.
	Limit int

	mu   sync.Mutex
	open map[string]int
}

// Begin notes that a deletion calls the plugin of that name; the error wraps ErrBusy and begins with
// the name. End follows a Begin without an error.
func (c *Calls) Begin(plugin string) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]int{}
	}
	if c.open[plugin] >= c.Limit {
		return fmt.Errorf("%s: %w", plugin, ErrBusy)
	}
	c.open[plugin]++
	return nil
}

// End notes that a deletion does not call the plugin any more.
func (c *Calls) End(plugin string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[plugin]--
}
