package itemset

import "context"

// itemWork is the processing of one object.
type itemWork struct {
	worker int
	done   chan struct{}
}

// Begin gives an object that waits, is unknown, or with again is unwanted, to the worker and
// returns what it was before, with its place; End is to follow. Any other result is returned as it
// is.
func (r *Set) Begin(k Key, worker int, again bool) (was Result, at Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.beginWork(k, worker, again, 0)
}

// BeginDetached is Begin of an object that is not processed with its block. If it is given away it
// is detached until Join.
func (r *Set) BeginDetached(k Key, worker int, again bool) (was Result, at Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.beginWork(k, worker, again, detached)
}

func (r *Set) beginWork(k Key, worker int, again bool, mark slotState) (was Result, at Place) {
	s := r.slots.getSlot(k)
	was = s.itemResult()
	if !was.Waits(again) {
		return was, Place{}
	}
	if was == Waiting {
		at = s.itemPlace()
	}
	r.busy[k] = &itemWork{worker: worker, done: make(chan struct{})}
	r.changeSlot(k, func(s *itemSlot) {
		s.setResult(Busy)
		if s.state |= mark; mark != 0 && was != Waiting {
			s.state &^= placed
		}
	})
	return was, at
}

// End gives its result to an object that Begin gave; the result is not Unknown.
func (r *Set) End(k Key, result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.busy[k]; ok {
		delete(r.busy, k)
		close(w.done)
	}
	r.changeSlot(k, func(s *itemSlot) {
		if s.setResult(result); result == Absent || result == Unwanted {
			s.state &^= detached // it has no block
		}
	})
}

// Wait waits until no worker processes the object. It returns false at once if that would be a
// deadlock: the object, or one that its worker waits for, is the asking worker's own.
func (r *Set) Wait(ctx context.Context, k Key, worker int) (bool, error) {
	w, ok := r.awaitedWork(k, worker)
	if w == nil {
		return ok, nil
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.asks, worker)
	}()
	select {
	case <-w.done:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// awaitedWork returns the work to wait for, nil if there is none or it is a cycle.
func (r *Set) awaitedWork(k Key, worker int) (_ *itemWork, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.busy[k]
	for at := first; at != nil; {
		if at.worker == worker {
			return nil, false
		}
		next, waits := r.asks[at.worker]
		if !waits {
			break
		}
		at = r.busy[next]
	}
	if first != nil {
		r.asks[worker] = k
	}
	return first, true
}
