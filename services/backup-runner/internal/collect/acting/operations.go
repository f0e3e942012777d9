package acting

import (
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
)

// refusedError is an answer that no record takes.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// callError is the error of a call about the object.
func (t *objectTurn) callError(call *checkpoint.Call, why error) error {
	s := t.subject
	return fmt.Errorf("action %s: Execute of %s %s: %w", call.Action, s.GroupVersionKind().GroupKind(), partwriter.ObjectKey(s.Namespace, s.Name), why)
}

// reserveOperation counts the operation that a call may begin. One that an earlier holder announced has
// its place.
func (p *Pool) reserveOperation(announced bool) error {
	if announced {
		p.Operations.AddOperation(0)
		return nil
	}
	if err := p.Operations.ReserveOperation(); err != nil {
		return fmt.Errorf("the call is not made, since it may begin an operation: %w", err)
	}
	return nil
}

// refuseTooLarge refuses an answer whose operation no list takes.
func refuseTooLarge(out *checkpoint.Outcome) error {
	for _, op := range checkpoint.Operations([]checkpoint.Outcome{*out}) {
		if err := operation.CheckSize(op); err != nil {
			return &refusedError{err}
		}
	}
	return nil
}

// countPostItems returns failure, or why the answer is refused: it has more post-operation items than
// a list takes.
func (p *Pool) countPostItems(begun *checkpoint.BegunOperation, failure error) error {
	refused := (*refusedError)(nil)
	tooLarge := p.Operations.AddPostItems(len(begun.PostOperation))
	switch {
	case tooLarge == nil, errors.As(failure, &refused):
		return failure
	case failure == nil:
		return &refusedError{tooLarge}
	}
	return &refusedError{fmt.Errorf("%w; %w", failure, tooLarge)}
}

// refuseAnswer makes an answer that no record takes the error of its call. The operation that the call
// began, if it did, is cancelled; the backup waits for its end.
func (t *objectTurn) refuseAnswer(a action.BackupItem, b *action.Backup, out *checkpoint.Outcome, id string, refused *refusedError) error {
	why := refused.err
	if id != "" {
		why = action.Refuse(t.actor.out.Uploads(), a, id, b.JSON(), why)
	}
	failure := t.callError(&out.Call, why)
	out.Body, out.Patch, out.Additional, out.Error = nil, nil, nil, failure.Error()
	if out.Begun != nil {
		out.Begun.PostOperation = nil
	}
	return failure
}

// completeBegun completes what is recorded of an operation by the answer that names it.
func (p *Pool) completeBegun(about *checkpoint.BegunOperation, r *action.BackupResult) *checkpoint.BegunOperation {
	about.Time, about.Process = p.Clock.Now().UTC(), r.Process
	if r.Process != "" {
		about.Instance = p.Instance
	}
	about.PostOperation = itemsOf(r.PostOperation)
	return about
}
