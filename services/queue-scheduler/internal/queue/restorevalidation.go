package queue

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// validationsAtOnce bounds the restores that are validated at once: each may read a bucket.
const validationsAtOnce = 4

// errSpecChanged means that a restore changed while its namespaces were read from the bucket.
var errSpecChanged = errors.New("its spec changed during validation")

// startValidation validates a new restore beside the passes. It does nothing while that restore, or
// as many others as possible, are being validated; a pass follows then. A later pass repeats a
// validation that failed.
func (s *Scheduler) startValidation(ctx context.Context, r *velerov1.Restore) {
	uid := r.UID
	if _, busy := s.validating.LoadOrStore(uid, true); busy {
		return
	}
	r = r.DeepCopy() // the pass ends before
	started := s.validations.TryGo(func() error {
		err := panics.Catch(func() error { return s.validateRestore(ctx, r) })
		s.validating.Delete(uid)
		switch {
		case err == nil: // the event of the write is followed by a pass
		case s.noteRefused(r, err):
			s.Wake()
		case ctx.Err() == nil:
			s.Log.WarnContext(ctx, "Failed to validate restore; will retry", "restore", r.Name, "error", err)
		}
		return nil
	})
	if !started {
		s.validating.Delete(uid)
	}
}

// validateRestore writes the computed spec of a new restore once, marked and with the namespaces it
// writes to, or FailedValidation. The namespaces are found before the write, which may be repeated:
// only those of a restore without a filter are read from a bucket.
// Its span is the root of the restore's trace.
func (s *Scheduler) validateRestore(ctx context.Context, r *velerov1.Restore) (err error) {
	ctx, end := s.traces.beginTrace(ctx, "validate restore", r)
	defer func() { end(err) }()
	completed := r.DeepCopy()
	problems, err := s.Validator.Restore(ctx, completed)
	if err != nil {
		return err
	}
	var namespaces []string
	if len(problems) == 0 {
		namespaces, err = s.Validator.Targets(ctx, completed)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, validate.ErrClusterUnread):
			return err // a later pass repeats the validation
		case err != nil:
			namespaces = validate.Targets(&completed.Spec)
			mark.RecordWarning(s.Events, r, "BackupNotRead", "Queue", fmt.Sprintf("waits for all jobs in namespaces %v: the backup could not be read: %v", namespaces, err))
			s.Log.WarnContext(ctx, "Failed to read backup; locking all namespaces the restore may touch", "restore", r.Name, "namespaces", namespaces, "error", err)
		}
	}
	return s.updateRestore(ctx, r, func(r *velerov1.Restore) error {
		if len(problems) > 0 || !equality.Semantic.DeepEqual(completed.Spec, r.Spec) {
			return errSpecChanged
		}
		if err := setNamespaces(r, namespaces); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, holdfast.AnnotationValidated, string(r.UID))
		if err := mark.SetWaits(r, mark.WaitsOf(completed)); err != nil {
			return err
		}
		messaging.SetTrace(ctx, r)
		failpoint.Hit("queue-scheduler/restore-validated")
		return nil
	})
}

// checkSource refuses a restore that was validated before if its backup is being deleted by now.
func (s *Scheduler) checkSource(ctx context.Context, r *velerov1.Restore) error {
	return s.updateRestore(ctx, r, func(*velerov1.Restore) error { return kube.ErrSkip })
}

// isValid reports that a restore, as it was just written or read, may be admitted.
func isValid(r *velerov1.Restore) bool {
	return r.UID != "" && r.Status.Phase.IsNew() && r.DeletionTimestamp == nil && mark.IsValidated(r)
}

// updateRestore judges a restore that is still new: its source alone where it was validated before,
// for a computed spec is not valid input. It writes FailedValidation where there are problems, else
// what complete makes of a restore that is not validated. A restore that is gone has no UID
// afterwards.
func (s *Scheduler) updateRestore(ctx context.Context, r *velerov1.Restore, complete func(*velerov1.Restore) error) error {
	before := r.Status.Phase
	err := kube.Update(ctx, s.Reader, s.Client, r, func(r *velerov1.Restore) error {
		if !r.Status.Phase.IsNew() || r.DeletionTimestamp != nil {
			return kube.ErrSkip
		}
		again := mark.IsValidated(r)
		judge := s.Validator.Restore
		if again {
			judge = s.Validator.Source
		}
		problems, err := judge(ctx, r)
		switch {
		case err != nil:
			return err
		case len(problems) > 0:
			r.Status.Phase, r.Status.ValidationErrors = velerov1.RestorePhaseFailedValidation, problems.Strings()
			return nil
		case again:
			return kube.ErrSkip
		}
		return complete(r)
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		r.UID = ""
		return nil
	}
	if err == nil && before != r.Status.Phase && r.Status.Phase == velerov1.RestorePhaseFailedValidation {
		s.Metrics.Ended(r)
		s.Log.InfoContext(ctx, "Restore failed validation", "restore", r.Name, "problems", r.Status.ValidationErrors)
		s.hints.announcePhase(ctx, r, string(r.Status.Phase))
	}
	return err
}
