package job

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// unreadableError says that the claim of a restore was damaged. Nobody can take such a restore: the epoch, which all fencing
// counts on, is lost.
type unreadableError struct {
	value string
	err   error
}

// Error implements error; it names the annotation.
func (e *unreadableError) Error() string { return "the claim cannot be read: " + e.err.Error() }

// Unwrap returns the cause.
func (e *unreadableError) Unwrap() error { return e.err }

// readable fails with an unreadableError when nobody can make sense of the restore's claim.
func readable(o *velerov1.Restore) error {
	if _, _, err := claim.Parse(o); err != nil {
		return &unreadableError{value: o.Annotations[holdfast.AnnotationClaim], err: err}
	}
	return nil
}

// settle ends a restore whose claim is unreadable, as long as it still is that and unfinished. No holder writes meanwhile:
// its own check of the claim fails.
func (r *Runner) settle(ctx context.Context, restore *velerov1.Restore, damage *unreadableError) error {
	final := r.object(restore.Name, restore.UID)
	err := kube.Update(ctx, r.cfg.Reader, r.cfg.Client, final, func(o *velerov1.Restore) error {
		if !open(o.Status.Phase) || o.DeletionTimestamp != nil || o.Annotations[holdfast.AnnotationClaim] != damage.value {
			return errNothing
		}
		o.Status.Phase = velerov1.RestorePhaseFailed
		o.Status.CompletionTimestamp = r.now()
		o.Status.FailureReason = damage.Error()
		return nil
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	if err != nil {
		return err
	}
	r.cfg.Log.Error("restore ended, for its claim cannot be read", "restore", final.Name, "error", damage)
	r.cfg.Metrics.End("", velerov1.RestorePhaseFailed)
	r.cfg.Ended(ctx, final)
	return nil
}
