package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// inherit follows the operations of a job that another server left, or moves it on where none of
// them can be asked about here: what has not ended counts as failed. missing is why the job has no
// sealed list, or why that is not known.
func inherit[T client.Object](ctx context.Context, m *Monitor, k *kind[T], e *entry, store objectstore.Store, obj T, missing error) (time.Duration, error) {
	if obj.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	select {
	case m.inheriting <- struct{}{}:
	default:
		return busy, nil
	}
	found, sealed, err := takeOver(ctx, m, k, store, obj, missing)
	if err == nil && sealed {
		err = open(ctx, m, k, e, store, obj)
	}
	if err == nil && sealed {
		return turn(ctx, m, k, e, store, obj)
	}
	if err != nil && m.holds(obj, err, k.status(obj)) {
		return m.Frequency, nil
	}
	if err != nil {
		m.unknown(obj, err.Error())
	}
	return 0, move(ctx, m, k, obj, err != nil || found.failed > 0, func(_ T, now status) error {
		if err == nil {
			*now.completed, *now.failed = found.completed, found.failed
		}
		return nil
	})
}

// takeOver reads what another server left of the operations of a job, and seals it where one of them
// can be asked about. It gives back the place in m.inheriting. The result has the counts alone.
func takeOver[T client.Object](ctx context.Context, m *Monitor, k *kind[T], store objectstore.Store, obj T, missing error) (found *left, sealed bool, err error) {
	defer func() { <-m.inheriting }()
	found, err = survey(ctx, m, k.name, obj.GetName())
	if err == nil && (store == nil || !errors.Is(missing, objectstore.ErrNotFound)) {
		err = missing // operations that are followed are not given up for that
	}
	if err == nil {
		sealed, err = adopt(ctx, m, k, store, obj, found)
	}
	found.operations, found.known = nil, nil
	return found, sealed, err
}

// adopt seals the operations of a job that another server left, so that they are followed like those
// that a runner began: no action is called again that begins one. It returns false where none of
// those that continue can be asked about, or where there are too many.
func adopt[T client.Object](ctx context.Context, m *Monitor, k *kind[T], store objectstore.Store, obj T, found *left) (bool, error) {
	log := m.Log.With("kind", k.name, "name", obj.GetName(), "completed", found.completed, "others", found.failed, "followed", found.followed)
	if found.followed == 0 {
		log.InfoContext(ctx, "no operation of another server is followed")
		return false, nil
	}
	err := found.tooLarge()
	if err == nil {
		job := operation.Job{Kind: k.name, Name: obj.GetName(), UID: string(obj.GetUID())}
		if err = own(ctx, m.Reader, store, job); err == nil {
			_, err = operation.Seal(ctx, store, operation.List{Job: job, Inherited: true, Operations: found.operations})
		}
	}
	if errors.Is(err, document.ErrTooLarge) {
		log.WarnContext(ctx, "operations of another server are too many to be followed, they count as failed", "error", err)
		m.unknown(obj, err.Error())
		return false, nil
	}
	if err != nil {
		return false, err
	}
	failpoint.Hit("async-operation-monitor/inherited-sealed")
	log.InfoContext(ctx, "operations of another server are followed")
	return true, nil
}

// own creates the owner file of the records of a restore, by which they are swept once its object is
// gone. It precedes the list. The directory of a backup goes as a whole.
func own(ctx context.Context, reader client.Reader, store objectstore.Store, job operation.Job) error {
	if job.Kind != operation.KindRestore {
		return nil
	}
	cluster, err := kube.ClusterUID(ctx, reader)
	if err != nil {
		return err
	}
	data, err := layout.RestoreOwner{RestoreUID: job.UID, ClusterUID: cluster}.Encode()
	if err != nil {
		return fmt.Errorf("encode the owner file: %w", err)
	}
	err = objectstore.CreateBytes(ctx, store, layout.RestoreOperationsOwnerFile(job.Name, job.UID), data)
	if err != nil && !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("store the owner file of the operations: %w", err)
	}
	return nil
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

func index(failed bool) int {
	if failed {
		return 1
	}
	return 0
}
