package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// dispatchRestores validates new restores and admits those that nothing running overlaps, and none
// of those that wait before them. Their phase stays New until a runner claims them. Afterwards
// v.pending holds those that wait.
func (s *Scheduler) dispatchRestores(ctx context.Context, v *view) error {
	var errs []error
	s.targetReads.spent = 0
	line := newRestoreAdmission(v.limits, v.entries)
	waiting := v.pending[:0:0]
	for i, r := range v.pending {
		if !v.admitted(r.UID) && s.inadmissible.isRefused(r) {
			continue
		}
		started, err := s.dispatchRestore(ctx, v, r, line)
		if errors.Is(err, ledger.ErrMoved) {
			waiting = append(waiting, v.pending[i:]...)
			s.Wake() // one that waits before it may start now: begin at the front again
			break
		}
		if errors.Is(err, errUnread) || s.inadmissible.noteRefused(r, err) {
			continue // it reserves nothing
		}
		if !started && r.Status.Phase.IsNew() && r.UID != "" {
			line.wait(r, err)
			waiting = append(waiting, r)
		}
		if err := s.reasons.reportOrFail(r, err); err != nil {
			errs = append(errs, fmt.Errorf("dispatch restore %s: %w", r.Name, err))
		}
	}
	v.pending = waiting
	return errors.Join(errs...)
}

// dispatchRestore reports true when the restore is (or was) admitted; the error is why it waits, or
// what went wrong.
func (s *Scheduler) dispatchRestore(ctx context.Context, v *view, r *velerov1.Restore, line *restoreAdmission) (bool, error) {
	if v.admitted(r.UID) {
		return true, nil // republish reminds the runners
	}
	if validated(r) {
		if reason := line.obstacle(restoreEntry(r, s.Clock.Now())); reason != nil {
			return false, reason // nothing needs to be read to know
		}
	}
	valid, err := s.validateRestore(ctx, r)
	if err != nil || !valid {
		return false, err
	}
	failpoint.Hit("queue-scheduler/restore-validated")
	e := restoreEntry(r, s.Clock.Now())
	if reason := line.obstacle(e); reason != nil {
		return false, reason
	}
	if err := s.Ledger.Admit(ctx, e, v.limits, line.blocking()...); err != nil {
		return false, err
	}
	failpoint.Hit("queue-scheduler/restore-admitted")
	line.admit(e)
	v.enter(e)
	return true, s.announceRestore(ctx, r, e)
}

// announceRestore logs an admitted restore, and the jobs beside which it runs.
func (s *Scheduler) announceRestore(ctx context.Context, r *velerov1.Restore, e ledger.Entry) error {
	ctx, end := s.traces.resume(ctx, "admit restore", r)
	defer end(nil)
	waited := s.Clock.Since(r.CreationTimestamp.Time)
	s.Log.InfoContext(ctx, "restore admitted", "restore", r.Name, "waited", waited)
	s.Events.Eventf(r, nil, corev1.EventTypeNormal, "Admitted", "Start", "may start after waiting %s", waited.Round(time.Second))
	s.hints.hintRestore(ctx, r)
	if !e.IgnoreBackups {
		return nil
	}
	entered, _, err := s.Ledger.Get(ctx, e.UID)
	if len(entered.Beside) > 0 {
		s.Log.WarnContext(ctx, "restore starts beside running backups", "restore", r.Name, "backups", entered.Beside)
		s.Events.Eventf(r, nil, corev1.EventTypeWarning, "BesideBackups", "Start", "starts beside running backups of the same namespaces: %v", entered.Beside)
	}
	return err
}

// validateRestore writes the computed spec once, marked and with the namespaces the
// restore writes to, or FailedValidation. One that was validated before is refused if
// its backup is being deleted by now.
// Its span is the root of the restore's trace.
func (s *Scheduler) validateRestore(ctx context.Context, r *velerov1.Restore) (_ bool, err error) {
	if !validated(r) {
		var end func(error)
		ctx, end = s.traces.begin(ctx, "validate restore", r)
		defer func() { end(err) }()
	}
	before := r.Status.Phase
	valid := false
	seen, found, err := s.readTargets(ctx, r)
	if err != nil {
		return false, err
	}
	err = kube.Update(ctx, s.Reader, s.Client, r, func(r *velerov1.Restore) error {
		valid = false
		if !r.Status.Phase.IsNew() || r.DeletionTimestamp != nil {
			return kube.ErrSkip
		}
		again := validated(r) // its backup may be on its way out by now
		check := s.Validator.Restore
		if again {
			check = s.Validator.Source
		}
		problems, err := check(ctx, r)
		if err != nil {
			return err
		}
		if len(problems) == 0 && again {
			valid = true
			return kube.ErrSkip
		}
		if len(problems) > 0 {
			r.Status.Phase = velerov1.RestorePhaseFailedValidation
			r.Status.ValidationErrors = problems.Strings()
			return nil
		}
		if seen == nil || !equality.Semantic.DeepEqual(seen.Spec, r.Spec) {
			return errUnread // changed meanwhile
		}
		if err := setNamespaces(r, found); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, validate.AnnotationValidated, string(r.UID))
		valid = true
		messaging.SetTrace(ctx, r)
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		r.UID = "" // gone: it does not wait
		return false, nil
	}
	if err == nil && before != r.Status.Phase && r.Status.Phase == velerov1.RestorePhaseFailedValidation {
		s.Metrics.Ended(r)
		s.Log.InfoContext(ctx, "restore refused", "restore", r.Name, "problems", r.Status.ValidationErrors)
		s.hints.announce(ctx, "Restore", r, string(r.Status.Phase))
	}
	return valid && err == nil, err
}

// readTargets finds the targets of a new restore as it will be once its spec is complete, and that
// spec; nil for one that is not new or has problems. It is no part of the write, which may be
// repeated.
func (s *Scheduler) readTargets(ctx context.Context, r *velerov1.Restore) (*velerov1.Restore, []string, error) {
	if validated(r) || !r.Status.Phase.IsNew() {
		return nil, nil, nil
	}
	seen := r.DeepCopy()
	problems, err := s.Validator.Restore(ctx, seen)
	if err != nil || len(problems) > 0 {
		return nil, nil, err
	}
	found, err := s.targetReads.findTargets(ctx, seen)
	return seen, found, err
}
