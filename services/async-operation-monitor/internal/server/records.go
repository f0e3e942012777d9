package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// mayHaveRecords reports whether a job may have operations that are in records alone.
func mayHaveRecords(job client.Object) bool {
	switch job := job.(type) {
	case *velerov1.Backup:
		return !job.Status.Phase.Terminal() && job.Status.Phase != velerov1.BackupPhaseDeleting
	case *velerov1.Restore:
		return !job.Status.Phase.Terminal()
	}
	return false
}

// foundOperations are the operations of a job as they were read: its records, or those of its file.
type foundOperations struct {
	job    client.Object
	kind   string
	ops    []operation.Operation
	states []operation.State
	file   []itemoperation.Operation
}

// readRecords reads the records of a job; nil where none are sealed.
func readRecords(ctx context.Context, store objectstore.Store, kind string, job client.Object) (*operation.Log, error) {
	if !mayHaveRecords(job) {
		return nil, nil //nolint:nilnil // a job without records is a normal answer
	}
	log, err := operation.Open(ctx, store, operation.Job{Kind: kind, Name: job.GetName(), UID: string(job.GetUID())})
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, nil //nolint:nilnil // as above
	case errors.Is(err, operation.ErrDamaged):
		return nil, fmt.Errorf("%w: %w", errgrpc.ErrCorrupt, err)
	}
	return log, err
}

// listOperations returns the operations, oldest first, with the progress that this process or the job's
// annotation has.
func (s *Source) listOperations(f *foundOperations) []itemoperation.Operation {
	if f.ops == nil {
		return f.file
	}
	states := slices.Clone(f.states)
	s.fillProgress(f.kind, f.job, f.ops, states)
	list := make([]itemoperation.Operation, len(states))
	for i := range list {
		list[i] = fileEntry(f.kind, &f.ops[i], &states[i])
	}
	slices.SortStableFunc(list, func(a, b itemoperation.Operation) int { return a.Status.Created.Compare(b.Status.Created.Time) })
	return list
}

// fillProgress fills in how far operations are that have not ended: from the memory of this process, else
// from the annotation, which has the first ten.
func (s *Source) fillProgress(kind string, job client.Object, ops []operation.Operation, states []operation.State) {
	if s.Memory != nil {
		if seen := s.Memory.States(kind, job.GetName(), job.GetUID()); len(seen) == len(states) {
			for i := range states {
				if !states[i].Phase.Ended() {
					states[i].Progress = seen[i].Progress
					if seen[i].Phase == operation.InProgress {
						states[i].Phase = operation.InProgress
					}
				}
			}
			return
		}
	}
	sum, _, err := operation.ReadSummary(job)
	if err != nil {
		return // its content is not needed
	}
	for i := range sum.Running {
		r := &sum.Running[i]
		at := slices.IndexFunc(ops, func(op operation.Operation) bool { return op.Action == r.Action && op.ID == r.ID })
		if at >= 0 && !states[at].Phase.Ended() && r.Phase == operation.InProgress {
			states[at].Phase = operation.InProgress
			states[at].Progress = operation.Progress{
				Completed: r.Completed, Total: r.Total, Units: r.Units, Description: r.Description, Started: r.Started, Updated: r.Updated,
			}
		}
	}
}

// fileEntry is an operation as the file of operations would have it.
func fileEntry(kind string, op *operation.Operation, s *operation.State) itemoperation.Operation {
	o := itemoperation.Operation{
		Spec: itemoperation.Spec{ID: op.ID, Resource: itemoperation.Resource(op.Item)},
		Status: itemoperation.Status{
			Phase: string(s.Phase), Error: s.Error, Completed: s.Completed, Total: s.Total, Units: s.Units, Description: s.Description,
			Created: timeOrNil(&op.Created), Started: timeOrNil(s.Started), Updated: timeOrNil(s.Updated),
		},
	}
	if s.Updated == nil && s.Phase.Ended() {
		o.Status.Updated = timeOrNil(&s.EndTime)
	}
	if kind == operation.KindRestore {
		o.Spec.RestoreAction = op.Action
	} else {
		o.Spec.BackupAction = op.Action
	}
	for _, r := range op.PostOperation {
		o.Spec.After = append(o.Spec.After, itemoperation.Resource(r))
	}
	return o
}

func timeOrNil(t *time.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	return &metav1.Time{Time: *t}
}
