package monitor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

const (
	// maxLeft bounds the operations of one job that are taken over from another server's file, in bytes
	// of the list that is sealed: some 30,000. A file of the bucket must not decide how much memory is
	// taken.
	maxLeft = 16 << 20
	// leftBytes is what an operation takes in the list beside its texts, and resourceBytes an item.
	leftBytes, resourceBytes = 256, 64
	// surveys is how many of these lists are in memory at once.
	surveys = 2
)

// left is what the file of another server has of the operations of a job.
type left struct {
	// completed and failed count the operations. Those that have not ended count as failed.
	completed, failed int
	// followed counts those that have not ended and can be asked about here.
	followed int
	// operations are all, as they are sealed; nil where they take more than maxLeft.
	operations []operation.Operation

	size  int
	known map[[2]string]bool // those that are followed, by action and ID
}

// survey reads the file that another server wrote of the operations of a job. It is an error where
// it is not known whether one that has not ended can be asked about.
func survey(ctx context.Context, m *Monitor, kind, name string) (*left, error) {
	l := &left{known: map[[2]string]bool{}}
	err := m.Files.EachLeft(ctx, kind, name, func(o *itemoperation.Operation) error {
		op := adopted(o, m.Clock.Now())
		if op.End == nil {
			var err error
			if op.Kind, err = m.Actions.Kind(kind, op.Action); err != nil {
				return fmt.Errorf("look for action %.128q: %w", op.Action, err)
			}
			if op.Kind == "" {
				op.End = &operation.End{Error: itemoperation.Abandoned}
			}
		}
		l.add(&op)
		return nil
	})
	return l, err
}

// add counts an operation and keeps it, unless it is followed already: what a file names twice is
// one operation.
func (l *left) add(op *operation.Operation) {
	if op.End != nil && op.End.Error == "" {
		l.completed++
	} else {
		l.failed++
	}
	if op.End == nil {
		key := [2]string{op.Action, op.ID}
		if l.known[key] {
			return
		}
		l.followed++
		if l.tooLarge() == nil {
			l.known[key] = true
		}
	}
	if l.size += sizeOf(op); l.tooLarge() != nil {
		l.operations, l.known = nil, nil
		return
	}
	l.operations = append(l.operations, *op)
}

// tooLarge is an error that wraps document.ErrTooLarge where the operations are too many.
func (l *left) tooLarge() error {
	if l.size <= maxLeft {
		return nil
	}
	return fmt.Errorf("operations of another server: %w: more than %d bytes", document.ErrTooLarge, maxLeft)
}

// sizeOf is how long an operation is in a list at most.
func sizeOf(op *operation.Operation) int {
	n := leftBytes + quoted(op.Action) + quoted(op.ID) + sizeOfResource(&op.Item)
	for i := range op.PostOperation {
		n += sizeOfResource(&op.PostOperation[i])
	}
	if op.End != nil {
		n += leftBytes + quoted(op.End.Error) + quoted(op.End.Units) + quoted(op.End.Description)
	}
	return n
}

func sizeOfResource(r *operation.Resource) int {
	return resourceBytes + quoted(r.Group) + quoted(r.Resource) + quoted(r.Namespace) + quoted(r.Name)
}

// escaped is how long a character is in JSON that is not written as it is.
const escaped = len(`\u0000`)

// quoted is how long a text is in JSON at most.
func quoted(text string) int {
	n := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			n += escaped
		default:
			n++
		}
	}
	return n
}

// adopted is an operation of a file of operations. A time of its creation that lies in the future is
// replaced by now: the operation would never time out.
func adopted(o *itemoperation.Operation, now time.Time) operation.Operation {
	s := &o.Status
	op := operation.Operation{
		Action: o.Spec.Action(), ID: o.Spec.ID, Item: operation.Resource(o.Spec.Resource), Created: now,
	}
	if s.Created != nil && s.Created.Time.Before(now) {
		op.Created = s.Created.Time
	}
	for _, r := range o.Spec.After {
		op.PostOperation = append(op.PostOperation, operation.Resource(r))
	}
	if !o.Done() {
		return op
	}
	op.End = &operation.End{Error: s.Error, Progress: operation.Progress{
		Completed: s.Completed, Total: s.Total, Units: s.Units, Description: s.Description, Started: timeOf(s.Started), Updated: timeOf(s.Updated),
	}}
	switch s.Phase {
	case itemoperation.PhaseCompleted:
		op.End.Error = ""
	default:
		op.End.Error = cmp.Or(s.Error, "no reason was given")
	}
	return op
}

func timeOf(t *metav1.Time) *time.Time {
	if t == nil {
		return nil
	}
	return &t.Time
}
