package pluginhost

import (
	"context"
	"sync"
)

// transfer is a stream under a watchdog on a process that is held until end.
type transfer struct {
	*watchdog
	w         *worker
	c         pluginCall
	caller    context.Context
	p         *process
	cancel    context.CancelFunc
	made      *callSending
	closeOnce sync.Once
}

// openTransfer holds a process for a stream, whose first step has begun. After an error there is
// nothing to end.
func (w *worker) openTransfer(ctx context.Context, c pluginCall) (*transfer, error) {
	p, err := w.processOf(ctx, &c)
	if err != nil {
		return nil, c.callError(err, false)
	}
	t := &transfer{w: w, c: c, caller: ctx, p: p, made: &callSending{plugin: c.name}}
	t.watchdog, t.cancel = startWatchdog(ctx, w.spec.clock, c.within)
	return t, nil
}

// streamContext is the context that the stream is opened with.
func (t *transfer) streamContext() context.Context { return withSending(t.ctx, t.made) }

// endTransfer gives the process back. It returns an *Error for err, nil for nil; only the first call
// counts.
func (t *transfer) endTransfer(err error) error {
	t.closeOnce.Do(func() {
		v, reason := t.w.classifyFailure(t.caller, t.ctx, t.p, err)
		t.w.releaseProcess(t.p, t.c.who, v, reason)
		t.cancel()
		if err = reason; err != nil {
			err = t.c.callError(err, t.made.sent.Load())
		}
	})
	return err
}
