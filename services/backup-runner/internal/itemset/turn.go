package itemset

import "context"

// work is the processing of one object.
type work struct {
	worker int
	done   chan struct{}
}

// Begin gives an object that waits, is unknown, or with again is unwanted, to the worker and
// returns what it was before, with its place; End is to follow. Any other fate is returned as it
// is.
func (r *Set) Begin(k Key, worker int, again bool) (was Fate, at Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin(k, worker, again, 0)
}

// BeginAside is Begin of an object that is not processed with its block. If it is given away it is
// aside until Join.
func (r *Set) BeginAside(k Key, worker int, again bool) (was Fate, at Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin(k, worker, again, aside)
}

func (r *Set) begin(k Key, worker int, again bool, mark state) (was Fate, at Place) {
	s := r.slots.get(k)
	was = s.fate()
	if !was.Waits(again) {
		return was, Place{}
	}
	if was == Waiting {
		at = s.place()
	}
	r.busy[k] = &work{worker: worker, done: make(chan struct{})}
	r.change(k, func(s *slot) {
		s.settle(Busy)
		if s.state |= mark; mark != 0 && was != Waiting {
			s.state &^= placed
		}
	})
	return was, at
}

// End settles an object that Begin gave; the fate is not Unknown.
func (r *Set) End(k Key, fate Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.busy[k]; ok {
		delete(r.busy, k)
		close(w.done)
	}
	r.change(k, func(s *slot) {
		if s.settle(fate); fate == Absent || fate == Unwanted {
			s.state &^= aside // it has no block
		}
	})
}

// Wait waits until no worker processes the object. It returns false at once if that would be a
// deadlock: the object, or one that its worker waits for, is the asking worker's own.
func (r *Set) Wait(ctx context.Context, k Key, worker int) (bool, error) {
	w, ok := r.ask(k, worker)
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

// ask returns the work to wait for, nil if there is none or it is a cycle.
func (r *Set) ask(k Key, worker int) (_ *work, ok bool) {
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
