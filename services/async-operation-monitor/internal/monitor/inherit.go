package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// inherit follows the operations of a job that another server left, or moves it on where none of
// them can be asked about here: what has not ended counts as failed. missing is why the job has no
// sealed list, or why that is not known.
func inherit[T client.Object](ctx context.Context, m *Monitor, k *kind[T], e *entry, store objectstore.Store, obj T, missing error) (time.Duration, error) {
	if obj.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	list, err := k.inherited(ctx, m.Files, obj.GetName())
	if err == nil && (store == nil || !errors.Is(missing, objectstore.ErrNotFound)) {
		err = missing // operations that are followed are not given up for that
	}
	if err == nil {
		var sealed bool
		sealed, err = adopt(ctx, m, k, store, obj, list)
		if err == nil && sealed {
			err = open(ctx, m, k, e, store, obj)
		}
		if err == nil && sealed {
			return turn(ctx, m, k, e, store, obj)
		}
	}
	if err != nil && m.holds(obj, err, k.status(obj)) {
		return m.Frequency, nil
	}
	failing := err != nil
	return 0, move(ctx, m, k, obj, failing || failed(list), func(_ T, now status) error {
		if !failing {
			*now.completed, *now.failed = count(list)
		}
		return nil
	})
}

// adopt seals the operations of a job that another server left, so that they are followed like those
// that a runner began: no action is called again that begins one. It returns false where none of
// those that go on can be asked about.
func adopt[T client.Object](ctx context.Context, m *Monitor, k *kind[T], store objectstore.Store, obj T, list []itemoperation.Operation) (bool, error) {
	sealed := operation.List{Job: operation.Job{Kind: k.name, Name: obj.GetName(), UID: string(obj.GetUID())}, Inherited: true}
	followed := 0
	for i := range list {
		op := adopted(&list[i], m.Clock.Now())
		if op.End == nil {
			var err error
			if op.Kind, err = m.Actions.Kind(k.name, op.Action); err != nil {
				return false, fmt.Errorf("look for action %.128q: %w", op.Action, err)
			}
			if op.Kind == "" {
				op.End = &operation.End{Error: itemoperation.Abandoned}
			} else {
				followed++
			}
		}
		sealed.Operations = append(sealed.Operations, op)
	}
	if followed == 0 {
		return false, nil
	}
	_, err := operation.Seal(ctx, store, sealed)
	if errors.Is(err, document.ErrTooLarge) {
		return false, nil
	}
	if err == nil {
		m.Log.InfoContext(ctx, "operations of another server are followed", "kind", k.name, "name", obj.GetName(), "operations", len(list), "followed", followed)
	}
	return err == nil, err
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

// defaultTimeout is that of jobs that name none (Velero 1.18); queue-scheduler gives every job one
// that it admits.
const defaultTimeout = 4 * time.Hour

// timeout is how long the operations of a job may take.
func timeout(s status) time.Duration { return cmp.Or(s.timeout, defaultTimeout) }

// holds reports whether a job whose operations cannot be read waits for another try: not when they
// never will be, when it was asked to stop, or when its operations had the time that it gives them.
func (m *Monitor) holds(obj client.Object, err error, s status) bool {
	_, cancelled := cancel.Requested(obj)
	over := m.over(obj, s, 0)
	gone := errors.Is(err, errgrpc.ErrCorrupt) || errors.Is(err, errgrpc.ErrNotFound) || apierrors.IsNotFound(err)
	holds := !cancelled && !over && !gone
	m.Log.Warn("operations of a job not read", "name", obj.GetName(), "waits", holds, "error", err)
	return holds
}

// over reports whether the time that a job gives its operations, and grace, have passed since it began.
func (m *Monitor) over(obj client.Object, s status, grace time.Duration) bool {
	since := s.started
	if since == nil {
		created := obj.GetCreationTimestamp()
		since = &created
	}
	return !m.Clock.Now().Before(since.Add(timeout(s) + grace))
}

// failed reports whether an operation has failed, or counts as that since it has not ended.
func failed(list []itemoperation.Operation) bool {
	return slices.ContainsFunc(list, func(o itemoperation.Operation) bool { return o.Status.Phase != itemoperation.PhaseCompleted })
}

func index(failed bool) int {
	if failed {
		return 1
	}
	return 0
}

func count(list []itemoperation.Operation) (completed, failed int) {
	for i := range list {
		if list[i].Status.Phase == itemoperation.PhaseCompleted {
			completed++
		} else {
			failed++
		}
	}
	return completed, failed
}
