package pluginhost

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

var _ action.Operations = (*Operations)(nil)

// Operations follows operations that plugins began, and begins those of the SDK's asynchronous
// actions for all sessions, which may run in the plugin's process. It has a process per binary,
// started at the first call. A call that is not answered in time fails alone. Safe for concurrent
// use.
type Operations struct {
	host *Host
	ctx  context.Context
	log  *slog.Logger

	mu      sync.Mutex
	workers map[string]*worker // by binary
	closed  bool
}

// Operations returns the host's one Operations, which the first call makes: sessions that are
// opened afterwards have the SDK's asynchronous actions, and Close ends its processes. The end of
// ctx interrupts starts. log gets what the plugins log; which job a line is about is not known.
func (h *Host) Operations(ctx context.Context, log *slog.Logger) *Operations {
	h.operations.CompareAndSwap(nil, &Operations{host: h, ctx: ctx, log: log, workers: map[string]*worker{}})
	return h.operations.Load()
}

// Close ends the processes with the operations that live in them, and returns when they and
// everything else in their process groups are gone.
func (o *Operations) Close() {
	o.mu.Lock()
	o.closed = true
	workers := slices.Collect(maps.Values(o.workers))
	o.mu.Unlock()
	var all sync.WaitGroup
	for _, w := range workers {
		all.Go(w.close)
	}
	all.Wait()
}

// drainLook is the time between two checks of Drain.
const drainLook = 100 * time.Millisecond

// Drain returns the number of operations in processes, once there is none or ctx has ended. An
// operation counts until Progress has reported its end.
func (o *Operations) Drain(ctx context.Context) int {
	ticker := o.host.cfg.Clock.NewTicker(drainLook)
	defer ticker.Stop()
	for {
		n := o.Running()
		if n == 0 || ctx.Err() != nil {
			return n
		}
		select {
		case <-ctx.Done():
		case <-ticker.C():
		}
	}
}

// Running returns the number of operations that live in processes.
func (o *Operations) Running() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.workers {
		n += w.countInhabitants()
	}
	return n
}

// Alive reports whether the process with this start ID, see action.BackupResult.Process, is one of
// these and runs.
func (o *Operations) Alive(process string) bool {
	o.mu.Lock()
	workers := slices.Collect(maps.Values(o.workers))
	o.mu.Unlock()
	return process != "" && slices.ContainsFunc(workers, func(w *worker) bool { return w.isRunning(process) })
}

// Forget lets the process of the operation end, as the operation's last Progress does. It is for an
// operation that is given up.
func (o *Operations) Forget(op action.Operation) {
	if p, err := o.pluginOf(op); err == nil {
		p.worker.removeOperation(op)
	}
}

// workerOf returns the worker of a binary. Deaths here are counted apart from those in sessions: the
// calls are others. In a closed Operations it is a closed one.
func (o *Operations) workerOf(path string) *worker {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w, ok := o.workers[path]; ok {
		return w
	}
	w := newWorker(o.ctx, o.host.specFor(path, o.log))
	w.key, w.backoffs = "operations "+path, o.host.backoffs
	w.shared, w.homes = true, map[action.Operation]*process{}
	o.workers[path] = w
	if o.closed {
		w.close()
	}
	return w
}

// operatingKinds are the kinds whose plugins begin operations.
var operatingKinds = []Kind{KindBackupItemActionV2, KindRestoreItemActionV2, KindAsyncBackupItemAction, KindAsyncRestoreItemAction}

// pluginOf returns the plugin that began the operation. As long as a binary could not be asked what it
// registers, no action is unknown.
func (o *Operations) pluginOf(op action.Operation) (*plugin, error) {
	known, kind := o.host.known.Load(), Kind(op.Kind)
	r, ok := known.findRegistration(kind, op.Action)
	if ok && slices.Contains(operatingKinds, kind) {
		return &plugin{name: r.Name, registration: r, worker: o.workerOf(r.Path)}, nil
	}
	if i := slices.IndexFunc(known.failures, func(f BinaryError) bool { return f.unread }); i >= 0 && !ok {
		return nil, fmt.Errorf("%w: %s %s: perhaps of another binary: %w", ErrUnknown, clipText(op.Kind), clipText(op.Action), known.failures[i])
	}
	return nil, fmt.Errorf("%w: %s %s", action.ErrUnknownAction, clipText(op.Kind), clipText(op.Action))
}
