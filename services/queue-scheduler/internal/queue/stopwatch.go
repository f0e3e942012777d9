package queue

import (
	"time"

	"k8s.io/utils/clock"
)

// stopwatch measures the deciding, without the calls between decisions.
type stopwatch struct {
	clock clock.PassiveClock
	since time.Time
	took  time.Duration
}

func newStopwatch(c clock.PassiveClock) *stopwatch {
	return &stopwatch{clock: c, since: c.Now()}
}

func (w *stopwatch) pause()  { w.took += w.clock.Since(w.since) }
func (w *stopwatch) resume() { w.since = w.clock.Now() }

func (w *stopwatch) stop() time.Duration {
	w.pause()
	return w.took
}
