package acting

import (
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
)

// refusedError is an answer that no record takes.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// callName names a call in errors.
func (t *objectTurn) callName(call *checkpoint.Call) string {
	s := t.subject
	return fmt.Sprintf("action %s: Execute of %s %s", call.Action, s.GroupVersionKind().GroupKind(), partwriter.ObjectKey(s.Namespace, s.Name))
}

// callError is the error of a call about the object.
func (t *objectTurn) callError(call *checkpoint.Call, why error) error {
	return fmt.Errorf("%s: %w", t.callName(call), why)
}

// maxItems bounds the additional items of an answer.
const maxItems = 10_000

// checkItems refuses an answer with too many additional items.
func checkItems(items []operation.Resource) error {
	if n := len(items); n > maxItems {
		return &refusedError{fmt.Errorf("%w: the answer has %d additional items, at most %d are possible", checkpoint.ErrTooLarge, n, maxItems)}
	}
	return nil
}

// refuseTooLarge refuses an answer whose operation no list takes.
func refuseTooLarge(begun *operation.Operation) error {
	if err := operation.CheckSize(*begun); err != nil {
		return &refusedError{err}
	}
	return nil
}

// countPostItems returns failure, or why the answer is refused: it has more post-operation items than
// a list takes.
func (p *Pool) countPostItems(begun *operation.Operation, failure error) error {
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
func (t *objectTurn) refuseAnswer(a action.BackupItem, b *action.Backup, out *checkpoint.Outcome, refused *refusedError) error {
	why := refused.err
	if out.Begun != nil {
		why = action.Refuse(t.actor.out.Uploads(), a, out.Begun.ID, b.JSON(), why)
		out.Begun.PostOperation = nil
	}
	failure := t.callError(&out.Call, why)
	out.Answer, out.Patch = effect.Answer{Error: failure.Error()}, nil
	return failure
}

// completeBegun completes what is recorded of an operation by the answer that names it.
func (p *Pool) completeBegun(begun *operation.Operation, r *action.BackupResult) {
	begun.ID, begun.Created, begun.PostOperation = r.OperationID, p.Clock.Now().UTC(), effect.Resources(r.PostOperation)
	if r.Process != "" {
		begun.Home = &operation.Home{Instance: p.Instance, Process: r.Process}
	}
}
