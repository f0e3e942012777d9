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

// heed calls the work off once the backup is asked to stop.
func (j *execution) heed(obj client.Object) {
	if r, asked := cancel.Requested(obj); asked && j.off.Err() == nil {
		j.log.InfoContext(j.off, "backup is cancelled, stopping it", "by", r.By)
		j.callOff(&cancel.Error{Request: r})
	}
}

// calledOff is the request to stop, nil while there is none.
func (j *execution) calledOff() *cancel.Error {
	var asked *cancel.Error
	if errors.As(context.Cause(j.off), &asked) {
		return asked
	}
	return nil
}

// cancellable returns a context that ends with ctx, or once the backup is asked to
// stop. The function releases it.
func (j *execution) cancellable(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	release := context.AfterFunc(j.off, func() { end(context.Cause(j.off)) })
	return ctx, func() {
		release()
		end(nil)
	}
}

// mark makes the commit begin: from now on a request to stop the backup comes too
// late. One that was there before is the error, a *cancel.Error. A holder whose
// claim was taken, however long it slept, cannot write the mark, and so commits
// nothing but a failure.
func (j *execution) mark(ctx context.Context) error {
	if err := j.confirm(ctx); err != nil {
		return err
	}
	err := j.retry(ctx, "mark the commit of the backup", func() error {
		return kube.Update(ctx, j.Reader, j.Client, j.reference(), func(b *velerov1.Backup) error {
			if err := claim.Check(b, j.mine); err != nil {
				return err
			}
			return cancel.Commit(b, j.mine.Epoch)
		})
	})
	if err == nil {
		failpoint.Hit("backup-runner/commit-marked")
	}
	return gone(err)
}

// present is confirm for the creation of a metadata file: it reads the object,
// since a backup deleted under a live claim must not get a directory in the bucket
// any more.
func (j *execution) present(ctx context.Context) error {
	if err := j.confirm(ctx); err != nil {
		return err
	}
	return gone(j.retry(ctx, "look at the backup before its commit", func() error {
		return kube.Update(ctx, j.Reader, j.Client, j.reference(), func(b *velerov1.Backup) error {
			if err := claim.Check(b, j.mine); err != nil {
				return err
			}
			return kube.ErrSkip
		})
	}))
}

// reference names the backup, for reads that leave what is known of it alone.
func (j *execution) reference() *velerov1.Backup {
	b := &velerov1.Backup{}
	b.Namespace, b.Name, b.UID = j.backup.Namespace, j.backup.Name, j.backup.UID
	return b
}

// gone makes the absence of the backup the loss of its claim.
func gone(err error) error {
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		return fmt.Errorf("%w: the backup is gone", claim.ErrLost)
	}
	return err
}
