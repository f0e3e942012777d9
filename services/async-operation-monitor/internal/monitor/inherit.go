package monitor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
)

// inherit moves a job on that another server left: nothing here can ask about its operations.
func inherit[T client.Object](ctx context.Context, m *Monitor, k *kind[T], obj T) (time.Duration, error) {
	if obj.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	list, err := k.inherited(ctx, m.Files, obj.GetName())
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
