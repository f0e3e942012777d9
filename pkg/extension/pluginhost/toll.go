package pluginhost

import (
	"fmt"
	"sync"
	"time"
)

// who is a plugin. Deaths are counted against it, and not against its binary: only the plugin's own
// answer shows that it works, and the others of the binary need not rest with it.
type who struct {
	kind Kind
	name string
}

// toll counts deaths of processes in a row. They are counted per process, not per call, or one
// crash under many calls would look like many.
type toll struct {
	deaths int
	last   error
	rested time.Time // when the next try is allowed after too many
}

func (t *toll) count(why error, s *spec) {
	t.deaths++
	t.last = why
	t.rested = s.clock.Now().Add(s.limits.Rest)
}

// rests returns ErrStopped after too many deaths until the rest is over; then one process is tried.
// A nil toll counts none.
func (t *toll) rests(s *spec) error {
	if t == nil || t.deaths < s.limits.Deaths || !s.clock.Now().Before(t.rested) {
		return nil
	}
	// The last death is told, and is none of this call, which was not made.
	return fmt.Errorf("%w (%d times): %s", ErrStopped, t.deaths, t.last.Error())
}

// tolls are those of a host: what a plugin did in one job counts in the next. Safe for concurrent
// use.
type tolls struct {
	mu  sync.Mutex
	all map[tollKey]*toll
}

// tollKey is a plugin, with the configuration that its processes have; without a name it is the
// binary itself: starts that failed, and processes that died without a call.
type tollKey struct {
	worker string
	who    who
}

func newTolls() *tolls { return &tolls{all: map[tollKey]*toll{}} }

func (t *tolls) count(key tollKey, why error, s *spec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[key] == nil {
		t.all[key] = new(toll)
	}
	t.all[key].count(why, s)
}

func (t *tolls) rests(key tollKey, s *spec) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[key].rests(s)
}

// clear forgets the deaths of a plugin that answered.
func (t *tolls) clear(key tollKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, key)
}
