package pluginhost

import "time"

// endWhenIdle ends a process that all jobs share once it was idle for long enough.
func (w *worker) endWhenIdle(p *process) {
	defer w.ending.Done()
	for pause := w.spec.limits.Idle; ; {
		timer := w.spec.clock.NewTimer(pause)
		select {
		case <-timer.C():
			pause = w.retireIdle(p)
			continue
		case <-p.cmd.exited:
		case <-w.ctx.Done():
		}
		timer.Stop()
		return
	}
}

// retireIdle takes a process out of use that is not needed, and returns when to check again.
func (w *worker) retireIdle(p *process) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.calls > 0 {
		return w.spec.limits.Idle
	}
	if rest := w.spec.limits.Idle - w.spec.clock.Since(p.used); rest > 0 {
		return rest
	}
	w.drainProcess(p)
	return w.spec.limits.Idle
}
