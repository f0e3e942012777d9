package pluginhost

import (
	"fmt"
	"time"
)

// who is a plugin. Deaths are counted against it, and not against its binary: only the plugin's own answer shows that it
// works, and the others of the binary need not rest with it.
type who struct {
	kind Kind
	name string
}

// toll counts deaths of processes in a row. They are counted per process, not per call, or one crash under many calls
// would look like many.
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

// rests returns ErrStopped after too many deaths until the rest is over; then one process is tried. A nil toll counts none.
func (t *toll) rests(s *spec) error {
	if t == nil || t.deaths < s.limits.Deaths || !s.clock.Now().Before(t.rested) {
		return nil
	}
	// The last death is told, and is none of this call, which was not made.
	return fmt.Errorf("%w (%d times): %s", ErrStopped, t.deaths, t.last.Error())
}
