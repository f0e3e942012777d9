package leftover

import (
	"fmt"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// stop ends an operation that the job is ended over.
func (j *Job) stop(op *itemoperation.Operation) {
	if j.Stop != "" && !op.Done() {
		op.Status.Phase, op.Status.Error, op.Status.Updated = itemoperation.PhaseFailed, itemoperation.Stopped(j.Stop), seconds(j.Now)
	}
}

// operation counts one operation, and returns its warning or error.
func (o *Outcome) operation(op *itemoperation.Operation) {
	item := &op.Spec.Resource
	entry := joblog.Entry{
		Level: joblog.Error, Scoped: true, Namespace: item.Namespace, Resource: item.GroupResource(), Name: item.Name,
		Message: fmt.Sprintf("operation %q of action %q did not end", op.Spec.ID, op.Spec.Action()), Err: itemoperation.Abandoned,
	}
	if op.Abandoned() {
		o.Failed++
		if op.Done() {
			entry.Err = op.Status.Error
		}
		o.add(entry)
		return
	}
	if op.Status.Phase == itemoperation.PhaseFailed {
		o.Failed++
		entry.Message, entry.Err = fmt.Sprintf("operation %q of action %q failed", op.Spec.ID, op.Spec.Action()), op.Status.Error
		o.add(entry)
		return
	}
	o.Completed++
	if item.GroupResource() == "volumesnapshots.snapshot.storage.k8s.io" {
		o.Snapshots++
	}
	if len(op.Spec.After) > 0 {
		o.add(stale(entry, op))
	}
}

// stale is what is said of a completed operation whose results the other server would have read
// from the cluster. What a data mover did is known from there alone; snapshots are stored with
// their handles before their operations end.
func stale(e joblog.Entry, op *itemoperation.Operation) joblog.Entry {
	after := &op.Spec.After[0]
	e.Level, e.Err = joblog.Warning, ""
	for i := range op.Spec.After {
		if r := &op.Spec.After[i]; r.GroupResource() == "datauploads.velero.io" {
			after, e.Level = r, joblog.Error
		}
	}
	what := fmt.Sprintf("%s %s", after.GroupResource(), filepath.Join(after.Namespace, after.Name))
	e.Message = fmt.Sprintf("operation %q of action %q: %s is not read again after its end", op.Spec.ID, op.Spec.Action(), what)
	if e.Level == joblog.Error {
		e.Err = "the backup does not tell where the data is that was moved, so it cannot be restored"
	}
	return e
}
