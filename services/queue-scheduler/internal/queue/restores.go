package queue

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// dispatchRestores validates new restores and admits those nothing running
// overlaps. Their phase stays New until a runner claims them. Afterwards
// v.pending holds those that wait.
func (s *Scheduler) dispatchRestores(ctx context.Context, v *view) error {
	var errs []error
	waiting := v.pending[:0:0]
	for _, r := range v.pending {
		started, err := s.dispatchRestore(ctx, v, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("dispatch restore %s: %w", r.Name, err))
		}
		if !started && r.Status.Phase.IsNew() && r.UID != "" {
			waiting = append(waiting, r)
		}
	}
	v.pending = waiting
	return errors.Join(errs...)
}

// dispatchRestore reports true when the restore is (or was) admitted.
func (s *Scheduler) dispatchRestore(ctx context.Context, v *view, r *velerov1.Restore) (bool, error) {
	if v.admitted(r.UID) {
		return true, nil // republish reminds the runners
	}
	valid, err := s.validateRestore(ctx, r)
	if err != nil || !valid {
		return false, err
	}
	failpoint.Hit("queue-scheduler/restore-validated")
	err = s.Ledger.Admit(ctx, ledger.Entry{
		UID: r.UID, Kind: ledger.KindRestore, Namespace: r.Namespace, Name: r.Name, Namespaces: validate.Targets(&r.Spec), Since: s.Clock.Now(),
	}, v.limits)
	if err != nil {
		return false, s.waitOrFail("Restore", r.Name, r, err)
	}
	failpoint.Hit("queue-scheduler/restore-admitted")
	ctx, end := s.resume(ctx, "admit restore", r)
	defer end(nil)
	s.Log.InfoContext(ctx, "restore admitted", "restore", r.Name, "waited", s.Clock.Since(r.CreationTimestamp.Time))
	s.hintRestore(ctx, r)
	return true, nil
}

// validateRestore writes the computed spec once, marked, or FailedValidation.
// Its span is the root of the restore's trace.
func (s *Scheduler) validateRestore(ctx context.Context, r *velerov1.Restore) (_ bool, err error) {
	if r.Annotations[validate.AnnotationValidated] != string(r.UID) {
		var end func(error)
		ctx, end = s.begin(ctx, "validate restore", r)
		defer func() { end(err) }()
	}
	before := r.Status.Phase
	valid := false
	err = kube.Update(ctx, s.Reader, s.Client, r, func(r *velerov1.Restore) error {
		valid = false
		if !r.Status.Phase.IsNew() || r.DeletionTimestamp != nil {
			return kube.ErrSkip
		}
		if r.Annotations[validate.AnnotationValidated] == string(r.UID) {
			valid = true
			return kube.ErrSkip
		}
		problems, err := s.Validator.Restore(ctx, r)
		if err != nil {
			return err
		}
		if len(problems) > 0 {
			r.Status.Phase = velerov1.RestorePhaseFailedValidation
			r.Status.ValidationErrors = problems.Strings()
			return nil
		}
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, validate.AnnotationValidated, string(r.UID))
		valid = true
		fabric.SetTrace(ctx, r)
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		r.UID = "" // gone: it does not wait
		return false, nil
	}
	if err == nil && before != r.Status.Phase && r.Status.Phase == velerov1.RestorePhaseFailedValidation {
		s.Metrics.RestoreRefused(r.Labels[velerov1.LabelScheduleName])
		s.Log.InfoContext(ctx, "restore refused", "restore", r.Name, "problems", r.Status.ValidationErrors)
		s.announce(ctx, "Restore", r, string(r.Status.Phase))
	}
	return valid && err == nil, err
}
