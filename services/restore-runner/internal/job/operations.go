package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

const (
	// failedPrefix begins the reason of a sealed list whose restore failed; the failureReason follows.
	failedPrefix = "the restore failed: "
	// deletedReason is the reason of a sealed list whose restore is deleted.
	deletedReason = "the restore is deleted"
	// mayGoOn is part of the message about a restore whose operations could not be sealed.
	mayGoOn = "operations that it began may go on"
)

func (s *session) operationsOf() operation.Job {
	return operation.Job{Kind: operation.KindRestore, Name: s.restore.Name, UID: string(s.restore.UID)}
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
// of them, or to a failure, and sealed what actions began.
func (in *restoreInputs) isRestored() bool {
	return in.operations != nil || in.unknown != nil || isFinalizing(in.restore.Status.Phase)
}

// endsRestore reports that the restore ends here, with that failure or none.
func endsRestore(failure error) bool {
	var fatal *fatalError
	return failure == nil || errors.As(failure, &fatal) || errors.Is(failure, errDeleted)
}

// awaitOperations seals what actions began before the restore ends, and reports whether it has to
// wait until that has ended. The operations of a restore that fails are cancelled, and its failure
// is returned once they have ended. Any other error means that the restore does not end in this
// process.
func (e *restoreEnding) awaitOperations(ctx context.Context, failure error) (waits bool, _ error) {
	in := e.inputs
	if !endsRestore(failure) || ctx.Err() != nil {
		return false, failure
	}
	seal := e.sealOperations
	switch {
	case in.records == nil && !e.isFresh() && !errors.Is(failure, errDeleted): // the kind seals those of a deleted restore
		seal = e.sealUnopened
	case in.records == nil, in.records.readOnly, in.unknown != nil:
		return false, failure
	}
	if in.operations == nil {
		err := seal(ctx, failure)
		switch {
		case err == nil:
		case errors.Is(err, claim.ErrLost):
			return false, err
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case e.held.Stopping().Err() != nil && errors.Is(err, context.Cause(e.held.Stopping())):
			return false, err // the next holder seals them
		case failure == nil && !endsRestore(err):
			return false, err
		default:
			e.unsealed = err
			e.log.ErrorContext(ctx, "operations of the failed restore are not cancelled", "error", err)
			if failure == nil {
				failure = err
			}
			return false, failure
		}
	}
	if in.operations == nil {
		return false, failure
	}
	failure = e.sealedFailure(failure)
	return !in.operations.Ended() && !e.leavesOperations(), failure
}

// leavesOperations reports that a cancelled restore has waited for the ends of its operations until the deadline: it is finalized
// before they have ended only then.
func (e *restoreEnding) leavesOperations() bool {
	return isFinalizing(e.restore.Status.Phase) && e.held.Cancelled() != nil
}

// sealOperations seals what actions began, if anything. Everything that is recorded is durable
// before: nothing is restored once there is a list.
func (e *restoreEnding) sealOperations(ctx context.Context, failure error) error {
	in := e.inputs
	if failure != nil {
		limited, stop := context.WithTimeout(ctx, cancelledLimit)
		defer stop()
		ctx = limited
	}
	if err := e.readBegun(ctx); err != nil {
		return err
	}
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
	log, err := e.storeList(ctx, listOf(e.operationsOf(), e.held.Claim.Epoch, begun, reasonOf(failure)))
	if errors.Is(err, operation.ErrDamaged) {
		in.unknown = err
		return nil
	}
	in.operations = log
	return err
}

// storeList stores a list of operations and opens their records.
func (e *restoreEnding) storeList(ctx context.Context, list operation.List) (*operation.Log, error) {
	return retryStoreCall(ctx, e.storeRetries(), "seal the operations of the restore", func() (*operation.Log, error) {
		return sealList(ctx, e.inputs.store, list)
	})
}

// sealList stores a list of operations and opens their records.
func sealList(ctx context.Context, store objectstore.Store, list operation.List) (*operation.Log, error) {
	if _, err := operation.Seal(ctx, store, list); err != nil {
		return nil, err
	}
	return operation.Open(ctx, store, list.Job)
}

// sealUnopened seals what earlier holders began where the records could not be opened.
func (e *restoreEnding) sealUnopened(ctx context.Context, failure error) error {
	quick, done := e.closingContext(ctx)
	defer done()
	log, err := retryStoreCall(quick, e.storeRetries(), "seal the operations of the restore", func() (*operation.Log, error) {
		if err := e.held.Confirm(quick); err != nil {
			return nil, err
		}
		return e.cfg.sealLeft(quick, e.restore, reasonOf(failure))
	})
	if err != nil && quick.Err() != nil && ctx.Err() == nil && !errors.Is(err, claim.ErrLost) {
		return context.Cause(quick)
	}
	if errors.Is(err, operation.ErrDamaged) {
		e.inputs.unknown = err
		return nil
	}
	e.inputs.operations = log
	return err
}

// failureReason is the failureReason of a restore that ends with a failure.
func (s *session) failureReason(failure *fatalError) string {
	if s.unsealed == nil {
		return s.paused.failureReason(failure)
	}
	return s.paused.failureReason(failure) + "; " + mayGoOn
}

// readBegun reads what earlier holders began, where the records were not replayed.
func (e *restoreEnding) readBegun(ctx context.Context) error {
	in := e.inputs
	if in.records.replayed.Load() || len(in.records.earlier) == 0 {
		return nil
	}
	_, err := retryStoreCall(ctx, e.storeRetries(), "read what the restore began", func() (struct{}, error) {
		return struct{}{}, pausing.LoadUnfinished(ctx, in.store, e.restore, in.recorder)
	})
	return err
}

func listOf(job operation.Job, epoch int64, begun []outcome.Operation, reason string) operation.List {
	l := operation.List{Job: job, Epoch: epoch, Reason: reason}
	for i := range begun {
		l.Operations = append(l.Operations, begun[i].Operation)
	}
	return l
}

// reasonOf is why the operations of a restore have to end; empty for one that waits for them.
func reasonOf(failure error) string {
	switch {
	case failure == nil:
		return ""
	case errors.Is(failure, errDeleted):
		return deletedReason
	}
	return failedPrefix + failure.Error()
}

// sealedFailure is the failure of a restore whose operations are sealed: the one that they were sealed
// with counts.
func (e *restoreEnding) sealedFailure(failure error) error {
	reason, failed := strings.CutPrefix(e.inputs.operations.Reason(), failedPrefix)
	switch request := e.held.Cancelled(); {
	case !failed, errors.Is(failure, errDeleted):
		return failure
	case request != nil:
		return &fatalError{request}
	}
	return &fatalError{errors.New(reason)}
}

// noteOperations makes every operation that failed, or has not ended, an error of the restore.
func (e *restoreEnding) noteOperations() {
	in := e.inputs
	if in.unknown != nil {
		in.recorder.Error(outcome.General, fmt.Sprintf("the operations of the restore are not known: %v", in.unknown))
	}
	if e.unsealed != nil {
		in.recorder.Error(outcome.General, fmt.Sprintf("%s: %v", mayGoOn, e.unsealed))
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
		text := fmt.Sprintf("operation %q of action %s ", ops[i].ID, ops[i].Action)
		switch states[i].Phase {
		case operation.Completed:
			continue
		case operation.Failed:
			text += "failed: " + states[i].Error
		default:
			text += "was cancelled and has not ended; it may still be running"
		}
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
