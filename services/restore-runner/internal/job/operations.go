package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/resumption"
)

const (
	// failedPrefix begins the reason of a sealed list whose restore failed; the failureReason follows.
	failedPrefix = "the restore failed: "
	// deletedReason is the reason of a sealed list whose restore is deleted.
	deletedReason = "the restore is deleted"
)

func (s *session) operationsOf() operation.Job {
	return operation.Job{Kind: operation.KindRestore, Name: s.restore.Name, UID: string(s.restore.UID)}
}

// sealed reads the operations of the restore, if an earlier holder has sealed them. Damage is kept:
// it is an error of the restore.
func (in *inputs) sealed(ctx context.Context) error {
	if in.fresh() || in.records.readOnly {
		return nil
	}
	log, err := retried(ctx, in.stores(), "read the operations of the restore", func() (*operation.Log, error) {
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

// restored reports that no object is to be restored any more: an earlier holder has come to the end
// of them, or to a failure, and sealed what actions began.
func (in *inputs) restored() bool {
	return in.operations != nil || in.unknown != nil || finalizing(in.restore.Status.Phase)
}

// ends reports that the restore ends here, with that failure or none.
func ends(failure error) bool {
	var verdict *fatalError
	return failure == nil || errors.As(failure, &verdict) || errors.Is(failure, errDeleted)
}

// awaitOperations seals what actions began before the restore ends, and reports whether it has to
// wait until that has ended. One that fails has its operations cancelled meanwhile, and its failure
// returned when it goes on. The error is another one only where the restore does not end here.
func (e *ending) awaitOperations(ctx context.Context, failure error) (waits bool, _ error) {
	in := e.inputs
	if !ends(failure) || ctx.Err() != nil {
		return false, failure
	}
	if in.records == nil || in.records.readOnly || in.unknown != nil {
		return false, failure
	}
	if in.operations == nil {
		err := e.sealOperations(ctx, failure)
		switch {
		case err == nil:
		case errors.Is(err, claim.ErrLost):
			return false, err
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case failure == nil:
			return false, err
		default:
			e.log.ErrorContext(ctx, "operations of the failed restore are not cancelled", "error", err)
			return false, failure
		}
	}
	if in.operations == nil {
		return false, failure
	}
	return !in.operations.Ended(), e.verdict(failure)
}

// sealOperations seals what actions began, if anything. Everything that is recorded is durable
// before: nothing is restored once there is a list.
func (e *ending) sealOperations(ctx context.Context, failure error) error {
	in := e.inputs
	if failure != nil {
		limited, stop := context.WithTimeout(ctx, cancelledLimit)
		defer stop()
		ctx = limited
	}
	if err := e.recall(ctx); err != nil {
		return err
	}
	begun := in.recorder.Operations()
	if len(begun) == 0 {
		return nil
	}
	if _, err := retried(ctx, e.stores(), "store the outcomes", func() (struct{}, error) { return struct{}{}, in.records.flush(ctx, in.recorder) }); err != nil {
		return err
	}
	if err := e.held.Confirm(ctx); err != nil {
		return fmt.Errorf("seal the operations of the restore: %w", err)
	}
	list := listOf(e.operationsOf(), e.held.Claim.Epoch, begun, reasonOf(failure))
	log, err := retried(ctx, e.stores(), "seal the operations of the restore", func() (*operation.Log, error) {
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

// recall reads what earlier holders began, where the records were not replayed.
func (e *ending) recall(ctx context.Context) error {
	in := e.inputs
	if in.records.replayed.Load() || len(in.records.earlier) == 0 {
		return nil
	}
	_, err := retried(ctx, e.stores(), "read what the restore began", func() (struct{}, error) {
		return struct{}{}, resumption.LoadUnfinished(ctx, in.store, e.restore, in.recorder)
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

// verdict is the failure of a restore whose operations are sealed: the one that they were sealed
// with counts.
func (e *ending) verdict(failure error) error {
	reason, failed := strings.CutPrefix(e.inputs.operations.Reason(), failedPrefix)
	switch request := e.held.Cancelled(); {
	case !failed, errors.Is(failure, errDeleted):
		return failure
	case request != nil:
		return &fatalError{request}
	}
	return &fatalError{errors.New(reason)}
}

// noteOperations makes every failed operation an error of the restore.
func (e *ending) noteOperations() {
	in := e.inputs
	if in.unknown != nil {
		in.recorder.Error(outcome.General, fmt.Sprintf("the operations of the restore are not known: %v", in.unknown))
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
func (e *ending) writeOperations(w io.Writer) error {
	if e.inputs.operations == nil {
		return itemoperation.Encode(w, e.operationsOf(), nil, nil)
	}
	return itemoperation.Encode(w, e.operationsOf(), e.inputs.operations.Operations(), e.inputs.operations.States())
}
