package pluginhost

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// watchdog ends a transfer's context with ErrTimeout when the plugin takes too long for one step.
// The time that our own side takes does not count.
type watchdog struct {
	ctx context.Context // of the transfer
	set chan bool
}

// startWatchdog returns the transfer's context, whose first step has begun; cancel ends it, and the
// watchdog with it. The context ends with ctx but does not have its deadline: gRPC sends deadlines
// to the plugin's side, which could fail first, with an error that is not distinguishable from the
// plugin's own.
func startWatchdog(ctx context.Context, c clock.WithTicker, limit time.Duration) (w *watchdog, cancel context.CancelFunc) {
	inner, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(contextCause(ctx)) })
	w = &watchdog{ctx: inner, set: make(chan bool)}
	go w.watchSteps(c, limit, end)
	return w, func() { stop(); end(nil) }
}

func (w *watchdog) watchSteps(c clock.WithTicker, limit time.Duration, end context.CancelCauseFunc) {
	timer := c.NewTimer(limit)
	defer timer.Stop()
	for waiting := true; ; {
		select {
		case waiting = <-w.set:
			if !timer.Stop() {
				select {
				case <-timer.C():
				default:
				}
			}
			timer.Reset(limit)
		case <-timer.C():
			if waiting {
				end(ErrTimeout)
				return
			}
		case <-w.ctx.Done():
			return
		}
	}
}

// runStep runs fn, which waits for the plugin once.
func (w *watchdog) runStep(fn func() error) error {
	w.reportWaiting(true)
	defer w.reportWaiting(false)
	return fn()
}

func (w *watchdog) reportWaiting(waiting bool) {
	select {
	case w.set <- waiting:
	case <-w.ctx.Done():
	}
}
