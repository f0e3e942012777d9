// Package known remembers what became of each object of a backup, so that none
// is processed twice, whoever asks for it, and lets those who need an object wait
// for the one who works on it.
package known

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key stands for an object. Keys are compared within one process only.
type Key [12]byte

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// KeyOf returns the key of an object. 96 bits with a secret seed: two of a million
// objects share a key once in 10^17 backups.
func KeyOf(kind schema.GroupKind, namespace, name string) (k Key) {
	var sums [2]uint64
	for i := range seeds {
		var h maphash.Hash
		h.SetSeed(seeds[i])
		for _, text := range [...]string{kind.Group, kind.Kind, namespace, name} {
			_, _ = h.WriteString(text) // a hash never fails
			_ = h.WriteByte(0)
		}
		sums[i] = h.Sum64()
	}
	binary.LittleEndian.PutUint64(k[:], sums[0])
	binary.LittleEndian.PutUint32(k[8:], uint32(sums[1])) //nolint:gosec // half of it is enough
	return k
}

// Fate is what became of an object.
type Fate uint32

// The fates.
const (
	// Unknown objects were never met.
	Unknown Fate = iota
	// Stored objects are in a part.
	Stored
	// Failed objects have an error in the log.
	Failed
	// LeftOut objects were kept out by an action.
	LeftOut
	// Absent objects do not exist.
	Absent
	// Unwanted objects exist, and the filters do not want them.
	Unwanted
	// Busy objects are being worked on.
	Busy
	// Waiting objects are held until their actions run.
	Waiting
)

// Place is where a held object lies. Files have numbers below 2^24.
type Place struct{ File, Offset uint32 }

// Register is safe for concurrent use. It takes at most 28 bytes for each object, held
// or not.
type Register struct {
	mu    sync.Mutex
	known table
	open  int // objects that wait
	owed  int // held objects that are aside
	busy  map[Key]*work
	asks  map[int]Key // by worker: the object it waits for
}

// work is the processing of one object.
type work struct {
	worker int
	done   chan struct{}
}

// New returns an empty register.
func New() *Register {
	return &Register{busy: map[Key]*work{}, asks: map[int]Key{}}
}

// change changes what is known of an object. The slot is valid during fn alone.
func (r *Register) change(k Key, fn func(s *slot)) {
	s := r.known.at(k)
	r.count(s, -1)
	fn(s)
	r.count(s, 1)
}

func (r *Register) count(s *slot, n int) {
	if s.fate() == Waiting {
		r.open += n
	}
	if s.has(aside | placed) {
		r.owed += n
	}
}

// Settle gives objects their fate.
func (r *Register) Settle(fate Fate, keys ...Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range keys {
		r.change(k, func(s *slot) { s.settle(fate) })
	}
}

// Hold notes that an object waits, unless it has a fate already. Of one that is
// aside it notes where it lies.
func (r *Register) Hold(k Key, at Place) (added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(k, func(s *slot) {
		switch {
		case s.fate() == Unknown:
			s.state &^= aside // it has its block before it
			s.settle(Waiting)
			s.lies(at)
			added = true
		case s.has(aside) && !s.has(placed):
			s.lies(at)
		}
	})
	return added
}

// Fate returns the fate of an object.
func (r *Register) Fate(k Key) Fate {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.known.get(k)
	return s.fate()
}

// Open returns how many objects wait.
func (r *Register) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// Pending returns how many held objects wait or are aside.
func (r *Register) Pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open + r.owed
}

// PendingAt reports whether the object that lies there waits or is aside.
func (r *Register) PendingAt(k Key, at Place) bool {
	found, pending := r.Place(k)
	return pending && found == at
}

// Place returns where a held object lies that waits or is aside.
func (r *Register) Place(k Key) (Place, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.known.get(k)
	if s.fate() == Waiting || s.has(aside|placed) {
		return s.place(), true
	}
	return Place{}, false
}

// Round begins anew to put objects into blocks.
func (r *Register) Round() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known.forget(entered)
}

// Enter notes that an object is in a block, once in each round.
func (r *Register) Enter(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.known.at(k)
	first := !s.has(entered)
	s.state |= entered
	return first
}

// Begin gives an object that waits, is unknown, or with again is unwanted, to the
// worker and returns what it was before, with its place; End is to follow. Any
// other fate is returned as it is.
func (r *Register) Begin(k Key, worker int, again bool) (was Fate, at Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin(k, worker, again, 0)
}

// BeginAside is Begin of an object that is not processed with its block. If it is
// given away it is aside until Join.
func (r *Register) BeginAside(k Key, worker int, again bool) (was Fate, at Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin(k, worker, again, aside)
}

// SetAside notes that an object was processed out of its block.
func (r *Register) SetAside(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(k, func(s *slot) {
		if !s.has(aside) {
			s.state = s.state&^placed | aside
		}
	})
}

// Aside reports whether the object was given away out of its block, which none has
// joined since.
func (r *Register) Aside(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.known.get(k)
	return s.has(aside)
}

// Join notes that the block of an object that may be aside is done.
func (r *Register) Join(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.known.get(k); s.has(aside) {
		r.change(k, func(s *slot) { s.state &^= aside })
	}
}

func (r *Register) begin(k Key, worker int, again bool, mark state) (was Fate, at Place) {
	s := r.known.get(k)
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

// Waits tells whether Begin gave the object away.
func (f Fate) Waits(again bool) bool {
	return f == Waiting || f == Unknown || (again && f == Unwanted)
}

// Met tells whether the object is the backup's business already: it was processed,
// or will be.
func (f Fate) Met() bool {
	return f == Stored || f == Failed || f == LeftOut || f == Waiting
}

// End settles an object that Begin gave; the fate is not Unknown.
func (r *Register) End(k Key, fate Fate) {
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

// Wait waits until nobody works on the object. It returns false at once if that
// would be for ever: the object, or one that its worker waits for, is the asking
// worker's own.
func (r *Register) Wait(ctx context.Context, k Key, worker int) (bool, error) {
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
func (r *Register) ask(k Key, worker int) (_ *work, ok bool) {
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
