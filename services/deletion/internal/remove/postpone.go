package remove

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/services/deletion/internal/expiry"
)

// restorePause is the time between two checks of a deletion that waits for a restore.
const restorePause = 15 * time.Second

// busyPause is the time between two attempts of a deletion whose plugin works for other deletions.
const busyPause = 15 * time.Second

// isPostponed reports whether the next try of a request under way is due only later. The permission to
// skip actions ends the pause.
func (r *Remover) isPostponed(req *velerov1.DeleteBackupRequest) bool {
	return req.Status.Phase == velerov1.DeleteBackupRequestPhaseInProgress && !skipsActions(req) && expiry.ReadTries(req).After.After(r.Clock.Now())
}

// postponeRequest releases the request until its next try is due. Until then it has the reason for the
// wait.
func (j *deletionJob) postponeRequest(ctx context.Context, next expiry.Tries, reasons []string) error {
	j.remover.Log.InfoContext(ctx, "Postponing deletion of backup", "backup", j.backup.Name, "request", j.request.Name, "until", next.After, "failed", next.Failed, "reasons", reasons)
	failpoint.Hit("deletion/before-postpone")
	err := j.held.Release(ctx, func(d *velerov1.DeleteBackupRequest) error {
		d.Status.Errors = reasons
		return next.Set(d)
	})
	failpoint.Hit("deletion/postponed")
	return err
}

// concludeUnsuccessful ends a try that removed nothing or not everything. What may succeed later is
// retried, with growing pauses and a bounded number of times; then the request ends with the
// errors.
func (j *deletionJob) concludeUnsuccessful(ctx context.Context, failures []string, again bool) error {
	next := expiry.ReadTries(j.request).Fail(j.remover.Clock.Now())
	limit := j.remover.Tries
	if limit == 0 {
		limit = expiry.PerRequest
	}
	if again && next.Failed < limit {
		return j.postponeRequest(ctx, next, failures)
	}
	j.remover.Log.WarnContext(ctx, "Failed to delete backup; the request ends with errors", "backup", j.backup.Name, "request", j.request.Name, "errors", failures)
	_, err := j.held.Finish(ctx, func(d *velerov1.DeleteBackupRequest) error {
		d.Status.Phase, d.Status.Errors = velerov1.DeleteBackupRequestPhaseProcessed, failures
		return next.Set(d)
	})
	if errors.Is(err, engine.ErrEnded) {
		return nil
	}
	return err
}

// skipsActions reports whether the object gives leave to delete without delete item actions.
func skipsActions(obj metav1.Object) bool {
	return obj.GetAnnotations()[holdfast.AnnotationSkipDeleteActions] == "true"
}

// checkSkip returns the problem of an annotation that is neither true nor false; "" is none.
func checkSkip(obj metav1.Object) string {
	value, set := obj.GetAnnotations()[holdfast.AnnotationSkipDeleteActions]
	if !set || value == "true" || value == "false" {
		return ""
	}
	return fmt.Sprintf("metadata.annotations[%s]: %q is neither true nor false", holdfast.AnnotationSkipDeleteActions, value)
}
