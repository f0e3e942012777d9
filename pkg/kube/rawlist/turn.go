package rawlist

import "context"

// largeBytes is from where on an item is large: above what etcd takes by default. Of all lists of a
// Client one at a time holds such an item, so that a server that sends nothing else costs the
// memory of one.
const largeBytes = 2 << 20

// memoryTurn is the part of one list in that. Used by one goroutine.
type memoryTurn struct {
	of   chan struct{}
	held bool
}

// enterTurn waits for the turn, unless the list has it.
func (t *memoryTurn) enterTurn(ctx context.Context) error {
	if t.held {
		return nil
	}
	select {
	case t.of <- struct{}{}:
		t.held = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leaveTurn ends the turn, if the list has it.
func (t *memoryTurn) leaveTurn() {
	if t.held {
		t.held = false
		<-t.of
	}
}
