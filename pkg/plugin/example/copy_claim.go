package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// copyClaim copies what a claim holds while the backup goes on. The copies run in this process, so
// they end with it and may be started again.
type copyClaim struct {
	plugin.NoLogs
	log *slog.Logger
	// copy does the work and ends soon after ctx does.
	copy func(ctx context.Context, claim *unstructured.Unstructured) error

	mu     sync.Mutex
	copies map[string]*copying // by operation ID
}

// copying is one operation.
type copying struct {
	progress plugin.Progress
	cancel   context.CancelFunc
}

func newCopyClaim(env plugin.Env) (plugin.AsyncBackupItemAction, error) {
	return &copyClaim{log: env.Log, copies: map[string]*copying{}, copy: copyNothing}, nil
}

// copyNothing is where your work goes.
func copyNothing(context.Context, *unstructured.Unstructured) error { return nil }

// AppliesTo leaves out claims without a volume.
func (*copyClaim) AppliesTo(context.Context) (plugin.Selector, error) {
	return plugin.Selector{Expression: `has(item.spec.volumeName)`}, nil
}

// Start begins a copy. The key is the operation's ID, so a repeated call finds the copy of the
// first.
func (a *copyClaim) Start(ctx context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	id := in.IdempotencyKey
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.copies[id]; !ok {
		work, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the call's context ends with the call
		a.copies[id] = &copying{progress: plugin.Progress{State: plugin.Running, Description: "copying"}, cancel: cancel}
		go a.run(work, id, in.Item)
	}
	return &plugin.AsyncBackupOutput{OperationID: id, InProcess: true}, nil
}

func (a *copyClaim) run(ctx context.Context, id string, claim *unstructured.Unstructured) {
	err := a.copy(ctx, claim)
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.copies[id]
	defer c.cancel()
	switch {
	case err == nil:
		c.progress = plugin.Progress{State: plugin.Succeeded}
	case errors.Is(err, context.Canceled):
		c.progress = plugin.Progress{State: plugin.Cancelled}
	default:
		c.progress = plugin.Progress{State: plugin.Failed, Error: err.Error()}
	}
	a.log.Debug("Copy ended", "claim", claim.GetName(), "error", err)
}

// Progress returns how far a copy is.
func (a *copyClaim) Progress(_ context.Context, op plugin.Operation) (plugin.Progress, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.copies[op.ID]
	if !ok {
		return plugin.Progress{}, fmt.Errorf("copy %s: %w", op.ID, plugin.ErrNoOperation)
	}
	return c.progress, nil
}

// Cancel ends a copy; its progress reports when it has ended.
func (a *copyClaim) Cancel(_ context.Context, op plugin.Operation, _ time.Duration) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.copies[op.ID]
	if !ok {
		return false, fmt.Errorf("copy %s: %w", op.ID, plugin.ErrNoOperation)
	}
	c.cancel()
	return true, nil
}
