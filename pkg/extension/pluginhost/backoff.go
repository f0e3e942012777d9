package pluginhost

import (
	"fmt"
	"sync"
	"time"
)

// who is a plugin. Deaths are counted against it, and not against its binary: only the plugin's own
// answer shows that it works, and the others of the binary are not refused with it.
type who struct {
	kind Kind
	name string
}

// backoff counts crashes of processes in a row. They are counted per process, not per call: one
// crash during many calls is one.
type backoff struct {
	deaths int
	last   error
	until  time.Time // when the next try is allowed after too many
}

func (t *backoff) countDeath(why error, s *processSpec) {
	t.deaths++
	t.last = why
	t.until = s.clock.Now().Add(s.limits.Backoff)
}

// checkStopped returns ErrStopped after too many deaths until the backoff is over; then one process is
// tried. A nil backoff has counted none.
func (t *backoff) checkStopped(s *processSpec) error {
	if t == nil || t.deaths < s.limits.Deaths || !s.clock.Now().Before(t.until) {
		return nil
	}
	// The text names the last death, which is not wrapped: this call was not made.
	return fmt.Errorf("%w (%d times): %s", ErrStopped, t.deaths, t.last.Error())
}

// backoffs are those of a host: what a plugin did in one job counts in the next. Safe for
// concurrent use.
type backoffs struct {
	mu  sync.Mutex
	all map[backoffKey]*backoff
}

// backoffKey is a plugin, with the configuration that its processes have; without a name it is the
// binary itself: starts that failed, and processes that died without a call.
type backoffKey struct {
	worker string
	who    who
}

func newBackoffs() *backoffs { return &backoffs{all: map[backoffKey]*backoff{}} }

func (t *backoffs) countDeath(key backoffKey, why error, s *processSpec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[key] == nil {
		t.all[key] = new(backoff)
	}
	t.all[key].countDeath(why, s)
}

func (t *backoffs) checkStopped(key backoffKey, s *processSpec) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[key].checkStopped(s)
}

// clearDeaths resets the crashes of a plugin that answered.
func (t *backoffs) clearDeaths(key backoffKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, key)
}
