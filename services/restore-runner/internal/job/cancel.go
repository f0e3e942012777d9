package job

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/cancel"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// cancellable prepares the job for a request to stop. The function ends that.
func (j *job) cancellable(ctx context.Context) (release func()) {
	j.off, j.callOff = context.WithCancelCause(ctx)
	stopped, stop := context.WithCancelCause(j.process)
	detach := context.AfterFunc(j.off, func() { stop(context.Cause(j.off)) })
	j.stopped = stopped
	return func() {
		detach()
		stop(nil)
		j.callOff(nil)
	}
}

// heed stops the restore once it is asked to: no further objects are begun.
func (j *job) heed(obj client.Object) {
	if r, asked := cancel.Requested(obj); asked && j.off.Err() == nil {
		j.log.Info("restore is cancelled, stopping it", "by", r.By)
		j.callOff(&cancel.Error{Request: r})
	}
}

// asked returns the request to stop that an error is about, nil if it is none.
func asked(err error) *cancel.Error {
	var request *cancel.Error
	if errors.As(err, &request) {
		return request
	}
	return nil
}

// unlessCalledOff makes the request to stop the failure of the restore, in the place of what it caused.
func (j *job) unlessCalledOff(ctx context.Context, err error) error {
	var verdict *fatalError
	request := asked(context.Cause(j.off))
	switch {
	case err == nil, request == nil, errors.As(err, &verdict), ctx.Err() != nil, j.process.Err() != nil,
		errors.Is(err, claim.ErrLost), errors.Is(err, errDeleted):
		return err
	}
	return &fatalError{request}
}

// restoring runs do, and marks its end if it comes to it. Once the restore is asked to stop, what is in flight has stopGrace to
// end.
func (j *job) restoring(ctx context.Context, do func(context.Context) error) error {
	grace, end := outlive(j.off, j.cfg.Clock, stopGrace)
	defer end()
	working, release := untilEnd(ctx, grace)
	defer release()
	if err := j.unlessCalledOff(ctx, j.attended(working, do)); err != nil {
		return err
	}
	return j.mark(ctx)
}

// mark says that the restore is done: from now on a request to stop it comes too late. One that was there before ends it.
func (j *job) mark(ctx context.Context) error {
	if j.records != nil && j.records.head.Finished != nil {
		return nil // decided by an earlier holder
	}
	err := j.retry(ctx, "mark the end of the restore", func() error {
		return j.update(ctx, func(o *velerov1.Restore) error {
			if o.DeletionTimestamp != nil {
				return errDeleted
			}
			return cancel.Commit(o, j.mine.Epoch)
		})
	})
	if request := asked(err); request != nil {
		return &fatalError{request}
	}
	if errors.Is(err, kube.ErrReplaced) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: the restore is gone", claim.ErrLost)
	}
	if err == nil {
		failpoint.Hit("restore-runner/commit-marked")
	}
	return err
}
