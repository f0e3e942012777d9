package job

import (
	"context"
	"errors"
	"fmt"
	"io"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

// unreadOperations is part of the message about a restore of which it is not known what it began.
const unreadOperations = "operations that it began may still be running"

func (s *session) operationsOf() operation.Job { return operationsOf(s.restore) }

func operationsOf(restore *velerov1.Restore) operation.Job {
	return operation.Job{Kind: operation.KindRestore, Name: restore.Name, UID: string(restore.UID)}
}

// readSealed reads the operations of the restore, if an earlier holder has sealed them. Damage is kept:
// it is an error of the restore.
func (in *restoreInputs) readSealed(ctx context.Context) error {
	if in.isFresh() || in.records.readOnly {
		return nil
	}
	log, err := retryStoreCall(ctx, in.storeRetries(), "read the operations of the restore", func() (*operation.Log, error) {
		return operation.Open(ctx, in.store, in.operationsOf())
	})
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil
	case errors.Is(err, operation.ErrDamaged):
		in.unknown = err
		return nil
	}
	in.operations = log
	return err
}

// isRestored reports that no object is to be restored any more: an earlier holder has come to the end
// of them, and sealed what actions began.
func (in *restoreInputs) isRestored() bool {
	return in.operations != nil || in.unknown != nil || isFinalizing(in.restore.Status.Phase)
}

// endsRestore reports that the restore ends here, with that failure or none.
func endsRestore(failure error) bool {
	var fatal *fatalError
	return failure == nil || errors.As(failure, &fatal) || errors.Is(failure, errDeleted)
}

// awaitOperations seals what actions began before the restore ends, and reports whether it has to
// wait until that has ended. The operations of a restore that fails are cancelled, and it does not wait
// for them; those of a deleted one are cancelled by Kind.Finalize. Any error but a failure of the
// restore means that the restore does not end in this process.
func (e *restoreEnding) awaitOperations(ctx context.Context, failure error) (waits bool, _ error) {
	in := e.inputs
	switch {
	case !endsRestore(failure), ctx.Err() != nil, errors.Is(failure, errDeleted), in.unknown != nil:
		return false, failure
	case failure == nil && in.operations == nil && !in.records.readOnly:
		failure = e.sealOperations(ctx)
	}
	if failure == nil {
		return in.operations != nil && !in.operations.Ended(), nil
	}
	var fatal *fatalError
	if !errors.As(failure, &fatal) {
		return false, failure
	}
	return false, e.cancelOperations(ctx, fatal)
}

// cancelOperations cancels the operations of a restore that fails, and returns the failure.
func (e *restoreEnding) cancelOperations(ctx context.Context, failure *fatalError) error {
	in := e.inputs
	if in.operations == nil {
		begun, err := e.readBegun(ctx)
		if err != nil {
			e.unread = err
			e.log.ErrorContext(ctx, "Failed to read the operations of the failed restore; they may still be running", "error", err)
		}
		in.operations = logOf(e.restore, begun)
	}
	if err := e.cfg.Operations.CancelOpen(ctx, in.operations, e.restore, "the restore failed: "+failure.Error()); err != nil {
		return err
	}
	return failure
}

// readBegun reads what the restore began, where its records were not replayed. It returns what could be
// read.
func (e *restoreEnding) readBegun(ctx context.Context) ([]outcome.Operation, error) {
	in := e.inputs
	limited, stop := context.WithTimeout(ctx, leftLimit)
	defer stop()
	switch {
	case in.records == nil && e.isFresh():
		return nil, nil
	case in.records == nil:
		return e.cfg.readLeft(limited, e.restore)
	case in.records.replayed.Load(), len(in.records.earlier) == 0:
		return in.recorder.Operations(), nil
	}
	err := pausing.LoadUnfinished(limited, in.store, e.restore, in.recorder)
	return in.recorder.Operations(), err
}

// sealOperations seals what actions began, if anything. Everything that is recorded is durable
// before: nothing is restored once there is a list.
func (e *restoreEnding) sealOperations(ctx context.Context) error {
	in := e.inputs
	begun := in.recorder.Operations()
	if len(begun) == 0 {
		return nil
	}
	if _, err := retryStoreCall(ctx, e.storeRetries(), "store the outcomes", func() (struct{}, error) { return struct{}{}, in.records.flushRecorder(ctx, in.recorder) }); err != nil {
		return err
	}
	if err := e.held.Confirm(ctx); err != nil {
		return fmt.Errorf("seal the operations of the restore: %w", err)
	}
	list := operation.List{Job: e.operationsOf(), Epoch: e.held.Claim.Epoch, Operations: operationsIn(begun)}
	log, err := retryStoreCall(ctx, e.storeRetries(), "seal the operations of the restore", func() (*operation.Log, error) {
		if _, err := operation.Seal(ctx, in.store, list); err != nil {
			return nil, err
		}
		return operation.Open(ctx, in.store, list.Job)
	})
	if errors.Is(err, operation.ErrDamaged) {
		in.unknown = err
		return nil
	}
	in.operations = log
	return err
}

// failureReason is the failureReason of a restore that ends with a failure.
func (s *session) failureReason(failure *fatalError) string {
	if s.unread == nil {
		return s.paused.failureReason(failure)
	}
	return s.paused.failureReason(failure) + "; " + unreadOperations
}

func operationsIn(begun []outcome.Operation) []operation.Operation {
	var list []operation.Operation
	for i := range begun {
		list = append(list, begun[i].Operation)
	}
	return list
}

// logOf is a log of operations that are not sealed.
func logOf(restore *velerov1.Restore, begun []outcome.Operation) *operation.Log {
	return operation.NewLog(operationsOf(restore), operationsIn(begun))
}

// noteOperations makes every operation that failed an error of the restore.
func (e *restoreEnding) noteOperations() {
	in := e.inputs
	if in.unknown != nil {
		in.recorder.Error(outcome.General, fmt.Sprintf("the operations of the restore are not known: %v", in.unknown))
	}
	if e.unread != nil {
		in.recorder.Error(outcome.General, fmt.Sprintf("%s: %v", unreadOperations, e.unread))
	}
	if in.operations == nil {
		return
	}
	nodes := map[operation.Resource]int32{}
	for _, o := range in.recorder.Operations() {
		nodes[o.Item] = o.Node
	}
	ops, states := in.operations.Operations(), in.operations.States()
	for i := range ops {
		if states[i].Phase != operation.Failed {
			continue
		}
		text := fmt.Sprintf("operation %q of action %s failed: %s", ops[i].ID, ops[i].Action, states[i].Error)
		node, known := nodes[ops[i].Item]
		if !known || node == outcome.General {
			node, text = outcome.General, ops[i].Item.String()+": "+text
		}
		in.recorder.Error(node, text)
	}
}

// writeOperations writes restore-<name>-itemoperations.json.gz's document (Velero 1.18).
func (e *restoreEnding) writeOperations(w io.Writer) error {
	if e.inputs.operations == nil {
		return operation.EncodeFile(w, e.operationsOf(), nil, nil)
	}
	return operation.EncodeFile(w, e.operationsOf(), e.inputs.operations.Operations(), e.inputs.operations.States())
}
