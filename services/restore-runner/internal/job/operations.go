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
	log, err := operation.Open(ctx, in.recordStore, in.operationsOf())
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

// errWaiting ends the steps of a restore whose operations have not all ended: async-operation-monitor
// continues with it, and a runner when they have.
var errWaiting = errors.New("operations of the restore have not ended")

func isWaiting(err error) bool { return errors.Is(err, errWaiting) }

// awaitOperations seals what actions began, and ends the steps with errWaiting until that has ended.
func awaitOperations(ctx context.Context, a *restoreAttempt) error {
	in := a.inputs
	if in.operations == nil && in.unknown == nil && !in.records.readOnly {
		if err := a.sealOperations(ctx); err != nil {
			return err
		}
	}
	if in.operations != nil && !in.operations.Ended() {
		return errWaiting
	}
	return nil
}

// cancelOperations cancels the operations of a restore that fails, which does not wait for them. Those
// of a deleted one are cancelled by Kind.Finalize.
func cancelOperations(ctx context.Context, a *restoreAttempt) error {
	in := a.inputs
	if in.unknown != nil {
		return nil
	}
	if in.operations == nil {
		begun, err := a.readBegun(ctx)
		if err != nil {
			a.unread = err
			a.log.ErrorContext(ctx, "Failed to read the operations of the failed restore; they may still be running", "error", err)
		}
		in.operations = newOperationLog(a.restore, begun)
	}
	return a.cfg.Operations.CancelOpen(ctx, in.operations, a.restore, "the restore failed: "+a.failure.Error())
}

// readBegun reads what the restore began, where its records were not replayed. It returns what could be
// read.
func (a *restoreAttempt) readBegun(ctx context.Context) ([]outcome.Operation, error) {
	in := a.inputs
	limited, stop := context.WithTimeout(ctx, leftLimit)
	defer stop()
	switch {
	case in.records == nil && a.isFresh():
		return nil, nil
	case in.records == nil:
		return a.cfg.readBegunOperations(limited, a.restore)
	case in.records.replayed.Load(), len(in.records.earlier) == 0:
		return in.recorder.Operations(), nil
	}
	err := pausing.LoadUnfinished(limited, in.recordStore, a.restore, in.recorder)
	return in.recorder.Operations(), err
}

// sealOperations seals what actions began, if anything. Everything that is recorded is durable
// before: nothing is restored once there is a list.
func (a *restoreAttempt) sealOperations(ctx context.Context) error {
	in := a.inputs
	begun := in.recorder.Operations()
	if len(begun) == 0 {
		return nil
	}
	if err := in.records.flushRecorder(ctx, in.recorder); err != nil {
		return fmt.Errorf("store the outcomes: %w", err)
	}
	if err := a.held.Confirm(ctx); err != nil {
		return fmt.Errorf("seal the operations of the restore: %w", err)
	}
	list := operation.List{Job: a.operationsOf(), Epoch: a.held.Claim.Epoch, Operations: operationsIn(begun)}
	_, err := operation.Seal(ctx, in.recordStore, list)
	if err == nil {
		in.operations, err = operation.Open(ctx, in.recordStore, list.Job)
	}
	switch {
	case errors.Is(err, operation.ErrDamaged):
		in.unknown = err
		return nil
	case err != nil:
		return fmt.Errorf("seal the operations of the restore: %w", err)
	}
	return nil
}

// failureReason is the failureReason of a restore that ends with a failure.
func (s *session) failureReason(failure error) string {
	if s.unread == nil {
		return s.paused.FailureReason(failure)
	}
	return s.paused.FailureReason(failure) + "; " + unreadOperations
}

func operationsIn(begun []outcome.Operation) []operation.Operation {
	var list []operation.Operation
	for i := range begun {
		list = append(list, begun[i].Operation)
	}
	return list
}

// newOperationLog returns a log of operations that are not sealed.
func newOperationLog(restore *velerov1.Restore, begun []outcome.Operation) *operation.Log {
	return operation.NewLog(operationsOf(restore), operationsIn(begun))
}

// noteOperations makes every operation that failed an error of the restore.
func (a *restoreAttempt) noteOperations() {
	in := a.inputs
	if in.unknown != nil {
		in.recorder.Error(outcome.General, fmt.Sprintf("the operations of the restore are not known: %v", in.unknown))
	}
	if a.unread != nil {
		in.recorder.Error(outcome.General, fmt.Sprintf("%s: %v", unreadOperations, a.unread))
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
func (a *restoreAttempt) writeOperations(w io.Writer) error {
	if a.inputs.operations == nil {
		return operation.EncodeFile(w, a.operationsOf(), nil, nil)
	}
	return operation.EncodeFile(w, a.operationsOf(), a.inputs.operations.Operations(), a.inputs.operations.States())
}
