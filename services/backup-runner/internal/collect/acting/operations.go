package acting

import (
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/remark"
)

// refusedError is an answer that no record takes.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// failed is the error of a call about the object.
func (t *turn) failed(call *checkpoint.Call, why error) error {
	s := t.subject
	return fmt.Errorf("action %s: Execute of %s %s: %w", call.Action, s.GroupVersionKind().GroupKind(), remark.ObjectKey(s.Namespace, s.Name), why)
}

// reserve keeps a place among the operations of the backup for the one that a call may begin.
func (p *Pool) reserve(call *checkpoint.Call, begun *checkpoint.Begun) (*operation.Reserved, error) {
	op := operationOf(&checkpoint.Outcome{Call: *call, Begun: begun})
	place, err := p.Operations.Reserve(&op, action.MaxOperationID+action.MaxProcess+len(p.Instance))
	if err != nil {
		err = fmt.Errorf("the call is not made, since it may begin an operation: %w", err)
	}
	return place, err
}

func operationOf(out *checkpoint.Outcome) operation.Operation {
	return checkpoint.Operations([]checkpoint.Outcome{*out})[0]
}

// list puts the operation of an outcome into its place. The answer is refused where no record takes it,
// or failure says so. An operation without a place is in no record.
func (t *turn) list(out *checkpoint.Outcome, place *operation.Reserved, failure error) error {
	op := operationOf(out)
	listed, tooLarge := place.Begun(&op)
	if !listed {
		out.Operation, out.Begun = "", nil
	}
	refused := (*refusedError)(nil)
	switch {
	case tooLarge == nil, errors.As(failure, &refused):
	case failure == nil:
		failure = &refusedError{tooLarge}
	default:
		failure = &refusedError{fmt.Errorf("%w; %w", failure, tooLarge)}
	}
	return failure
}

// refuse makes an answer that no record takes the error of its call. The operation that the call
// began, if it did, is cancelled; the backup waits for its end.
func (t *turn) refuse(a action.BackupItem, b *action.Backup, out *checkpoint.Outcome, id string, refused *refusedError) error {
	why := refused.err
	if id != "" {
		why = action.Refuse(t.actor.out.Uploads(), a, id, b.JSON(), why)
	}
	failure := t.failed(&out.Call, why)
	out.Body, out.Patch, out.Additional, out.Error = nil, nil, nil, failure.Error()
	if out.Begun != nil {
		out.Begun.PostOperation = nil
	}
	return failure
}

// begun completes what is recorded of an operation by the answer that names it.
func (p *Pool) begun(about *checkpoint.Begun, r *action.BackupResult) *checkpoint.Begun {
	about.Time, about.Process = p.Clock.Now().UTC(), r.Process
	if r.Process != "" {
		about.Instance = p.Instance
	}
	about.PostOperation = itemsOf(r.PostOperation)
	return about
}
