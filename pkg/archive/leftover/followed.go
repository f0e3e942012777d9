package leftover

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// followed are the operations of a job that were followed here to an end, or had ended before, by
// action and ID.
type followed map[[2]string]*ending

// ending is how an operation ended.
type ending struct {
	operation.State
	before bool // the other server knew the end
}

// followed reads the records of the job; nil where nothing was followed here.
func (j *Job) followed(ctx context.Context) (followed, error) {
	log, err := operation.Open(ctx, j.Store, j.Owner)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the records of the operations: %w", err)
	}
	f := followed{}
	states := log.States()
	for i, op := range log.Operations() {
		if states[i].Phase.Ended() {
			f[[2]string{op.Action, op.ID}] = &ending{State: states[i], before: op.End != nil}
		}
	}
	return f, nil
}

// here reports whether an operation ended while it was followed here, so that its end in the file, if
// any, is of an earlier attempt.
func (f followed) here(op *itemoperation.Operation) bool {
	s, ok := f[[2]string{op.Spec.Action(), op.Spec.ID}]
	return ok && !s.before
}

// end ends an operation of the file as it did here.
func (f followed) end(op *itemoperation.Operation) {
	s, ok := f[[2]string{op.Spec.Action(), op.Spec.ID}]
	if !ok || op.Done() || s.Error == itemoperation.Abandoned {
		return
	}
	to := &op.Status
	to.Phase, to.Error = string(s.Phase), s.Error
	to.Completed, to.Total, to.Units, to.Description = s.Completed, s.Total, s.Units, s.Description
	if s.Started != nil {
		to.Started = seconds(*s.Started)
	}
	to.Updated = seconds(s.EndTime)
	if s.Updated != nil {
		to.Updated = seconds(*s.Updated)
	}
}

// seconds is a time in the precision that the file keeps.
func seconds(t time.Time) *metav1.Time { return &metav1.Time{Time: t.UTC().Truncate(time.Second)} }
