package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// dispatchRestores validates new restores and admits those that nothing running overlaps, and none
// of those that wait before them. Their phase stays New until a runner claims them. Afterwards
// v.pending holds those that wait. A restore whose targets are in its backup is validated beside the
// pass and reserves nothing until then, since it would reserve everything.
func (s *Scheduler) dispatchRestores(ctx context.Context, v *passView) error {
	var errs []error
	line := newAdmission(ledger.KindRestore, v.limits.Restores, v.entries)
	waiting := v.pending[:0:0]
	for i, r := range v.pending {
		if !v.isAdmitted(r.UID) && !s.isReserving(r) {
			if s.refused.currentError(r) == nil {
				s.startValidation(ctx, r)
			}
			continue
		}
		started, err := s.dispatchRestore(ctx, v, r, line)
		if errors.Is(err, ledger.ErrMoved) {
			waiting = append(waiting, v.pending[i:]...)
			v.moved = true
			break
		}
		if s.noteRefused(r, err) {
			continue // it reserves nothing
		}
		if !started && r.Status.Phase.IsNew() && r.UID != "" {
			line.reserveFor("restore "+r.Name, targetNamespaces(r), err)
			waiting = append(waiting, r)
		}
		err = errors.Join(s.reasons.reportOrFail(r, err), s.noteWait(ctx, r, err))
		if err != nil {
			errs = append(errs, fmt.Errorf("dispatch restore %s: %w", r.Name, err))
		}
	}
	v.pending = waiting
	return errors.Join(errs...)
}

// isReserving reports that a restore that waits reserves namespaces: the API server does not refuse to
// write it, and its targets are known.
func (s *Scheduler) isReserving(r *velerov1.Restore) bool {
	return s.refused.currentError(r) == nil && (mark.IsValidated(r) || !ledger.IsAll(targetNamespaces(r)))
}

// dispatchRestore reports true when the restore is (or was) admitted; the error is why it waits, or
// what went wrong.
func (s *Scheduler) dispatchRestore(ctx context.Context, v *passView, r *velerov1.Restore, line *admission) (bool, error) {
	if v.isAdmitted(r.UID) {
		return true, nil // republish reminds the runners
	}
	validatedBefore := mark.IsValidated(r)
	if !validatedBefore {
		if err := s.validateRestore(ctx, r); err != nil || !isValid(r) {
			return false, err
		}
	}
	e := restoreEntry(r, s.Clock.Now())
	if reason := line.obstacleFor(&e); reason != nil {
		return false, reason // nothing needs to be read to know
	}
	if reason := s.orderError(v, r); reason != nil {
		return false, reason
	}
	if validatedBefore {
		if err := s.checkSource(ctx, r); err != nil || !isValid(r) {
			return false, err
		}
	}
	stored, err := s.Ledger.Admit(ctx, e, v.limits, line.blockingEntries()...)
	if err != nil {
		return false, err
	}
	failpoint.Hit("queue-scheduler/restore-admitted")
	line.noteAdmitted(e)
	v.noteEntered(e)
	s.announceRestore(ctx, r, stored)
	return true, nil
}

// announceRestore logs an admitted restore, and the jobs beside which it runs.
func (s *Scheduler) announceRestore(ctx context.Context, r *velerov1.Restore, e ledger.Entry) {
	ctx, end := s.traces.resumeTrace(ctx, "admit restore", r)
	defer end(nil)
	waited := s.Clock.Since(r.CreationTimestamp.Time)
	s.Log.InfoContext(ctx, "Restore admitted", "restore", r.Name, "waited", waited)
	s.Events.Eventf(r, nil, corev1.EventTypeNormal, "Admitted", "Start", "may start after waiting %s", waited.Round(time.Second))
	s.hints.hintJob(ctx, r)
	if len(e.Beside) > 0 {
		s.Log.WarnContext(ctx, "Restore starts beside running backups of the same namespaces", "restore", r.Name, "backups", e.Beside)
		s.Events.Eventf(r, nil, corev1.EventTypeWarning, "BesideBackups", "Start", "starts beside running backups of the same namespaces: %v", e.Beside)
	}
}

// restoreEntry is the entry of a restore in the ledger.
func restoreEntry(r *velerov1.Restore, now time.Time) ledger.Entry {
	return ledger.Entry{
		UID: r.UID, Kind: ledger.KindRestore, Namespace: r.Namespace, Name: r.Name, Namespaces: targetNamespaces(r), Since: now,
		IgnoreBackups: r.Annotations[holdfast.AnnotationIgnoreRunning] == "true", Idle: mark.WaitsOf(r).Idle,
	}
}

// targetNamespaces are the namespaces a restore writes to, sorted: those noted when it was validated, which
// is done once, else those of its spec alone.
func targetNamespaces(r *velerov1.Restore) []string {
	if mark.IsValidated(r) {
		if noted, ok, err := notedNamespaces(r); ok && err == nil {
			return noted
		}
	}
	return validate.Targets(&r.Spec)
}

// olderError means that an older restore may still create what a restore depends on: scripts rely on
// the order in which Velero restores, one after the other.
type olderError struct{ name string }

// Error implements error.
func (e *olderError) Error() string {
	return fmt.Sprintf("restore %s is older, and not all of its definitions and cluster-scoped objects have an outcome yet", e.name)
}

// orderError is why a restore waits for an older one; nil if it does not.
func (s *Scheduler) orderError(v *passView, r *velerov1.Restore) error {
	if v.oldest == nil {
		v.oldest, v.oldestRunning = &velerov1.Restore{}, &velerov1.Restore{} // none
		for _, o := range v.traced {
			if !s.isAwaitedByLater(o) {
				continue
			}
			if v.oldest.UID == "" || compareAge(o, v.oldest) < 0 {
				v.oldest = o
			}
			if running := !o.Status.Phase.IsNew() || v.isAdmitted(o.UID); running && (v.oldestRunning.UID == "" || compareAge(o, v.oldestRunning) < 0) {
				v.oldestRunning = o
			}
		}
	}
	if v.oldest.UID != "" && compareAge(v.oldest, r) < 0 {
		return &olderError{v.oldest.Name}
	}
	// Creation times have whole seconds: one that runs already was first, whatever the names are.
	if o := v.oldestRunning; o.UID != "" && o.UID != r.UID && !o.CreationTimestamp.After(r.CreationTimestamp.Time) {
		return &olderError{o.Name}
	}
	return nil
}

// isAwaitedByLater reports that restores created later wait for an unfinished one: by its spec it may have
// cluster-scoped objects, and they have no outcomes yet.
func (s *Scheduler) isAwaitedByLater(r *velerov1.Restore) bool {
	phase := r.Status.Phase
	running := phase == velerov1.RestorePhaseInProgress && !mark.IsForeign(r)
	if !phase.IsNew() && !running || r.DeletionTimestamp != nil || mark.WaitsOf(r).SharedDone || s.refused.currentError(r) != nil {
		return false
	}
	if asked := r.Spec.IncludeClusterResources; asked != nil {
		return *asked
	}
	return len(r.Spec.IncludedNamespaces) == 0 || slices.Contains(r.Spec.IncludedNamespaces, selection.All)
}

// noteWait marks a restore with the reason why it waits, at the rate of Events.
func (s *Scheduler) noteWait(ctx context.Context, r *velerov1.Restore, reason error) error {
	if kindOfReason(reason) == noReason {
		return nil
	}
	var wait mark.Waits
	wait.Add(mark.Wait{Reason: reason.Error(), Since: s.Clock.Now()})
	if known := mark.WaitsOf(r).For; len(known) == 1 && known[0].Reason == wait.For[0].Reason || !s.reasons.limiter.AllowN(s.Clock.Now(), 1) {
		return nil
	}
	err := kube.Update(ctx, s.Reader, s.Client, r.DeepCopy(), func(r *velerov1.Restore) error {
		if !r.Status.Phase.IsNew() {
			return kube.ErrSkip
		}
		wait.SharedDone = mark.WaitsOf(r).SharedDone
		return mark.SetWaits(r, wait)
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		return nil
	}
	return err
}
