// Package itemset has what became of each object of a backup, so that none is processed twice,
// whichever action names it, and lets a worker that needs an object wait for the one that processes
// it. Objects that wait for their actions lie in spools: as they were listed, compressed one by one, in
// files from which any of them can be read on its own.
package itemset

import "sync"

// Place is where a spooled object lies. Files have numbers below 2^24.
type Place struct{ File, Offset uint32 }

// Set is safe for concurrent use. It takes at most 28 bytes for each object, spooled or not.
type Set struct {
	mu    sync.Mutex
	slots slotTable
	open  int // objects that wait
	owed  int // spooled objects that are detached
	busy  map[Key]*itemWork
	asks  map[int]Key // by worker: the object it waits for
}

// New returns an empty set.
func New() *Set {
	return &Set{busy: map[Key]*itemWork{}, asks: map[int]Key{}}
}

// changeSlot changes the slot of an object. The slot is valid during fn alone.
func (r *Set) changeSlot(k Key, fn func(s *itemSlot)) {
	s := r.slots.ensureSlot(k)
	r.countChange(s, -1)
	fn(s)
	r.countChange(s, 1)
}

func (r *Set) countChange(s *itemSlot, n int) {
	if s.itemResult() == Waiting {
		r.open += n
	}
	if s.hasState(detached | placed) {
		r.owed += n
	}
}

// SetResult gives objects their result.
func (r *Set) SetResult(result Result, keys ...Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		r.changeSlot(k, func(s *itemSlot) { s.setResult(result) })
	}
}

// Hold notes that an object waits, unless it has a result already. Of one that is detached it notes
// where it lies.
func (r *Set) Hold(k Key, at Place) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changeSlot(k, func(s *itemSlot) {
		switch {
		case s.itemResult() == Unknown:
			s.state &^= detached // it has its block before it
			s.setResult(Waiting)
			s.setPlace(at)
			added = true
		case s.hasState(detached) && !s.hasState(placed):
			s.setPlace(at)
		}
	})
	return added
}

// Result returns the result of an object.
func (r *Set) Result(k Key) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.slots.getSlot(k)
	return s.itemResult()
}

// Open returns how many objects wait.
func (r *Set) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// Pending returns how many spooled objects wait or are detached.
func (r *Set) Pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open + r.owed
}

// PendingAt reports whether the object that lies there waits or is detached.
func (r *Set) PendingAt(k Key, at Place) bool {
	found, pending := r.Place(k)
	return pending && found == at
}

// Place returns where a spooled object lies that waits or is detached.
func (r *Set) Place(k Key) (Place, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.slots.getSlot(k)
	if s.itemResult() == Waiting || s.hasState(detached|placed) {
		return s.itemPlace(), true
	}
	return Place{}, false
}

// StartRound begins anew to put objects into blocks.
func (r *Set) StartRound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots.clearMark(entered)
}

// Enter notes that an object is in a block, once in each round.
func (r *Set) Enter(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.slots.ensureSlot(k)
	first := !s.hasState(entered)
	s.state |= entered
	return first
}

// SetAside notes that an object was processed out of its block.
func (r *Set) SetAside(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changeSlot(k, func(s *itemSlot) {
		if !s.hasState(detached) {
			s.state = s.state&^placed | detached
		}
	})
}

// Detached reports whether the object was given away out of its block, which none has joined since.
func (r *Set) Detached(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.slots.getSlot(k)
	return s.hasState(detached)
}

// Join notes that the block of an object that may be detached is done.
func (r *Set) Join(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.slots.getSlot(k); s.hasState(detached) {
		r.changeSlot(k, func(s *itemSlot) { s.state &^= detached })
	}
}
