package pluginhost

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
)

// This file is what a worker that all jobs share does beyond others: it keeps a process as long as
// operations run in it, follows them there, and ends the process once it has been idle for a while.

// startID reads the start ID of the process, once. ctx is that of a call that was not made yet.
func (p *process) startID(ctx context.Context) (string, error) {
	if id := p.started.Load(); id != nil {
		return *id, nil
	}
	answer, err := pluginv1.NewPluginServiceClient(p.conn).Describe(withSending(ctx, &callSending{}), &pluginv1.DescribeRequest{})
	if err != nil {
		return "", err
	}
	id := answer.GetProcessId()
	p.started.CompareAndSwap(nil, &id)
	return *p.started.Load(), nil
}

// checkStartID refuses an ID that does not distinguish processes.
func checkStartID(id string) error {
	if id == "" || len(id) > action.MaxProcess {
		return fmt.Errorf("%w: Describe: process_id %q, and an operation lives in the process", ErrMalformed, clipText(id))
	}
	return nil
}

// isRunning reports whether a process with this start ID is running.
func (w *worker) isRunning(startID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.live {
		if id := p.started.Load(); id != nil && *id == startID && !p.cmd.hasExited() {
			return true
		}
	}
	return false
}

// processOf returns the process of the operation of the call, else any, for one call.
func (w *worker) processOf(ctx context.Context, c *pluginCall) (*process, error) {
	if c.operation != (action.Operation{}) {
		if p := w.homeProcess(c.operation); p != nil {
			return p, nil
		}
	}
	return w.acquireProcess(ctx, c.who)
}

// homeProcess returns the running process of the operation, for one call, or nil.
func (w *worker) homeProcess(op action.Operation) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.homes[op]
	if p == nil || p.cmd.hasExited() {
		return nil
	}
	p.calls++
	return p
}

// countInhabitants counts the operations that live in processes.
func (w *worker) countInhabitants() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.homes)
}

// addOperation keeps the process, which is answering a call, until the operation is removed.
func (w *worker) addOperation(op action.Operation, p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.homes[op] == p || p.cmd.hasExited() || w.closed {
		return
	}
	w.removeLocked(op)
	w.homes[op] = p
	p.operations++
}

// removeOperation removes the operation from those that keep a process.
func (w *worker) removeOperation(op action.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(op)
}

// removeLocked is removeOperation; the caller holds the lock.
func (w *worker) removeLocked(op action.Operation) {
	if p := w.homes[op]; p != nil {
		delete(w.homes, op)
		p.operations--
		p.used = w.spec.clock.Now()
		w.retireProcess(p)
	}
}

// removeOperations drops all operations of a process that is lost. The caller holds the lock.
func (w *worker) removeOperations(p *process) {
	for op, home := range w.homes {
		if home == p {
			delete(w.homes, op)
		}
	}
	p.operations = 0
}

// endWhenIdle ends the process when it was idle for long enough, and removes its operations when
// it ends.
func (w *worker) endWhenIdle(p *process) {
	defer w.ending.Done()
	for pause := w.spec.limits.Idle; ; {
		timer := w.spec.clock.NewTimer(pause)
		select {
		case <-timer.C():
			pause = w.retireIdle(p)
			continue
		case <-p.cmd.exited:
			w.mu.Lock()
			w.removeOperations(p)
			w.retireProcess(p)
			w.mu.Unlock()
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
	if p.calls > 0 || p.operations > 0 {
		return w.spec.limits.Idle
	}
	if rest := w.spec.limits.Idle - w.spec.clock.Since(p.used); rest > 0 {
		return rest
	}
	w.drainProcess(p)
	return w.spec.limits.Idle
}
