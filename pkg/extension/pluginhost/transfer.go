package pluginhost

import (
	"context"
	"sync"
)

// transfer is a stream under a watchdog on a process that is held until end.
type transfer struct {
	*watchdog
	w         *worker
	c         call
	caller    context.Context
	p         *process
	cancel    context.CancelFunc
	made      *sending
	closeOnce sync.Once
}

// transfer holds a process for a stream, whose first step has begun. After an error there is
// nothing to end.
func (w *worker) transfer(ctx context.Context, c call) (*transfer, error) {
	p, err := w.at(ctx, &c)
	if err != nil {
		return nil, c.fail(err, false)
	}
	t := &transfer{w: w, c: c, caller: ctx, p: p, made: &sending{plugin: c.name}}
	t.watchdog, t.cancel = watch(ctx, w.spec.clock, c.within)
	return t, nil
}

// stream is the context that the stream is opened with.
func (t *transfer) stream() context.Context { return withSending(t.ctx, t.made) }

// end gives the process back. It returns an *Error for err, nil for nil; only the first call
// counts.
func (t *transfer) end(err error) error {
	t.closeOnce.Do(func() {
		v, reason := t.w.classify(t.caller, t.ctx, t.p, err)
		t.w.release(t.p, t.c.who, v, reason)
		t.cancel()
		if err = reason; err != nil {
			err = t.c.fail(err, t.made.sent.Load())
		}
	})
	return err
}
