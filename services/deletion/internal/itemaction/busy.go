package itemaction

import (
	"errors"
	"fmt"
	"sync"
)

// ErrBusy means that as many deletions wait for an action as may. Nothing failed: this one is to
// come again.
var ErrBusy = errors.New("works for other deletions")

// Calls bounds how many deletions call one action at once, so that one that hangs does not collect
// all of them. It is safe for concurrent use; a nil *Calls has no bound.
type Calls struct {
	// Limit is how many.
	Limit int

	mu   sync.Mutex
	open map[string]int
}

// beginCall notes a call; the error wraps ErrBusy.
func (c *Calls) beginCall(action string) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]int{}
	}
	if c.open[action] >= c.Limit {
		return fmt.Errorf("plugin %s: %w", action, ErrBusy)
	}
	c.open[action]++
	return nil
}

func (c *Calls) endCall(action string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[action]--
}
