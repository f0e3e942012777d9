package pluginhost

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

var _ action.Operations = (*Operations)(nil)

// Operations follows operations that plugins began, and begins those of the SDK's asynchronous
// actions for all sessions. It has a process per binary, started at the first call and ended when it
// was idle for Limits.Idle. Safe for concurrent use.
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

// Close ends the processes, and returns when they and everything else in their process groups are
// gone.
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

// Run ends the processes once ctx has ended, and returns nil.
func (o *Operations) Run(ctx context.Context) error {
	<-ctx.Done()
	o.Close()
	return nil
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
	w.shared = true
	o.workers[path] = w
	if o.closed {
		w.close()
	}
	return w
}

// operating are the kinds whose plugins begin operations.
var operating = []Kind{KindBackupItemActionV2, KindRestoreItemActionV2, KindAsyncBackupItemAction, KindAsyncRestoreItemAction}

// pluginOf returns the plugin that began the operation. As long as a binary could not be asked what it
// registers, no action is unknown.
func (o *Operations) pluginOf(op action.Operation) (*plugin, error) {
	known, kind := o.host.known.Load(), Kind(op.Kind)
	r, ok := known.findRegistration(kind, op.Action)
	if ok && slices.Contains(operating, kind) {
		return &plugin{name: r.Name, registration: r, worker: o.workerOf(r.Path)}, nil
	}
	if i := slices.IndexFunc(known.failures, func(f BinaryError) bool { return f.unread }); i >= 0 && !ok {
		return nil, fmt.Errorf("%w: %s %s: perhaps of another binary: %w", ErrUnknown, clipText(op.Kind), clipText(op.Action), known.failures[i])
	}
	return nil, fmt.Errorf("%w: %s %s", action.ErrUnknownAction, clipText(op.Kind), clipText(op.Action))
}
