package rawlist

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// watchdog cancels a request whose answer does not arrive. The time the consumer takes for the
// items does not count.
type watchdog struct {
	clock clock.WithTicker
	limit time.Duration
	since atomic.Pointer[time.Time] // start of the read in flight, nil between reads
	quit  chan struct{}
	done  chan struct{}
}

func newWatchdog(clk clock.WithTicker, limit time.Duration, cancel context.CancelCauseFunc) *watchdog {
	w := &watchdog{clock: clk, limit: limit, quit: make(chan struct{}), done: make(chan struct{})}
	go w.watchWaits(cancel)
	return w
}

func (w *watchdog) watchWaits(cancel context.CancelCauseFunc) {
	defer close(w.done)
	ticker := w.clock.NewTicker(w.limit / 4)
	defer ticker.Stop()
	for {
		select {
		case <-w.quit:
			return
		case <-ticker.C():
			if t := w.since.Load(); t != nil && w.clock.Since(*t) >= w.limit {
				cancel(ErrStalled)
				return
			}
		}
	}
}

// markBusy marks the begin of a wait for the server, idle its end.
func (w *watchdog) markBusy() {
	now := w.clock.Now()
	w.since.Store(&now)
}

func (w *watchdog) markIdle() { w.since.Store(nil) }

func (w *watchdog) stop() {
	close(w.quit)
	<-w.done
}

// watchedReader reports to the watchdog when it waits.
type watchedReader struct {
	r     io.Reader
	watch *watchdog
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.watch.markBusy()
	defer r.watch.markIdle()
	return r.r.Read(p)
}
