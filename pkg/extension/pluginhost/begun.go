package pluginhost

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

var (
	_ action.Canceller = (*backupItemV2)(nil)
	_ action.Canceller = (*restoreOperations)(nil)
	_ action.Canceller = (*async)(nil)
)

// CancelBegun implements action.Canceller.
func (b *backupItemV2) CancelBegun(ctx context.Context, id string, job []byte) error {
	return b.cancelBegun(ctx, id, job)
}

// CancelBegun implements action.Canceller.
func (a *restoreOperations) CancelBegun(ctx context.Context, id string, job []byte) error {
	return a.cancelBegun(ctx, id, job)
}

// CancelBegun implements action.Canceller.
func (a *async) CancelBegun(ctx context.Context, id string, job []byte) error {
	return a.cancelBegun(ctx, id, job)
}

// operationOf is the operation with that ID.
func (p *plugin) operationOf(id string) action.Operation {
	return action.Operation{Kind: string(p.registration.Kind), Action: p.name, ID: id}
}

func (p *plugin) cancelBegun(ctx context.Context, id string, job []byte) error {
	return p.worker.callProcess(ctx, callAbout(p.newShortCall("Cancel"), p.operationOf(id)), func(ctx context.Context, at *process) error {
		return p.cancelAt(ctx, at, id, job)
	})
}

func (p *plugin) cancelAt(ctx context.Context, at *process, id string, job []byte) error {
	accepted, err := cancelOperation(ctx, at.conn, p.operationOf(id), job, 0)
	if err == nil && !accepted {
		err = action.ErrNotCancelled
	}
	return err
}

// checkOperationID refuses a name that is too long to be kept. The operation, which no other call can
// name, is cancelled in the process that began it.
func (p *plugin) checkOperationID(ctx context.Context, at *process, id string, job []byte) error {
	if len(id) <= action.MaxOperationID {
		return nil
	}
	dog, done := startWatchdog(context.WithoutCancel(ctx), p.worker.spec.clock, p.worker.spec.limits.Query)
	defer done()
	became := "is cancelled"
	if err := p.cancelAt(dog.ctx, at, id, job); err != nil {
		became = "is not followed, and could not be cancelled: " + clipText(err.Error())
	}
	return fmt.Errorf("%w: operation ID is longer than %d bytes: the operation that it names %s", ErrMalformed, action.MaxOperationID, became)
}
