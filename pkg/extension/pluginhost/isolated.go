package pluginhost

import "context"

// callIsolated makes a call on a process that is started for it and answers no other call. One call of
// a worker has such a process at a time. The wait for the calls before it, each of which has a limit,
// is not part of its own time.
func (w *worker) callIsolated(ctx context.Context, c pluginCall, fn func(context.Context, *process) error) error {
	select {
	case w.isolating <- struct{}{}:
		defer func() { <-w.isolating }()
	case <-ctx.Done():
		return c.callError(contextCause(ctx), false)
	}
	return w.callOnce(ctx, c, w.acquireIsolated, fn)
}

// acquireIsolated starts a process for one call; release ends it. The end of ctx, and of the
// session, interrupts the start.
func (w *worker) acquireIsolated(ctx context.Context, c *pluginCall) (*process, error) {
	if err := w.beginIsolated(c.who); err != nil {
		return nil, err
	}
	defer w.ending.Done()
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	p, err := w.spec.startProcess(starting)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, contextCause(ctx)
	case err != nil && w.ctx.Err() == nil:
		w.backoffs.countDeath(w.backoffKey(who{}), err, w.spec)
		return nil, err
	case err != nil:
		return nil, err
	case w.closed:
		w.ending.Add(1)
		go w.finishProcess(p)
		return nil, ErrClosed
	}
	p.calls, p.draining = 1, true
	w.live[p] = struct{}{}
	return p, nil
}

// beginIsolated checks that a process may start, and makes close wait until ending.Done.
func (w *worker) beginIsolated(by who) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	for _, of := range []who{by, {}} {
		if err := w.backoffs.checkStopped(w.backoffKey(of), w.spec); err != nil {
			return err
		}
	}
	w.ending.Add(1)
	return nil
}
