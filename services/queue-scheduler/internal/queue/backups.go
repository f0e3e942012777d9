package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// enqueueLimit bounds what one pass queues, so that backups which may start do not wait for the
// validation of thousands that come after them.
const enqueueLimit = 250

// enqueueNew validates new backups and puts them behind the last one. Their numbers come from the
// ledger in one block.
func (s *Scheduler) enqueueNew(ctx context.Context, v *passView) error {
	all := slices.DeleteFunc(slices.Clone(v.fresh), func(b *velerov1.Backup) bool { return s.refused.currentError(b) != nil })
	fresh := all[:min(len(all), enqueueLimit)]
	if len(fresh) == 0 {
		return nil
	}
	first, err := s.Ledger.NextSequences(ctx, len(fresh), v.lastSequence())
	if err != nil {
		return err
	}
	handled := 0
	var errs []error
	for i, b := range fresh {
		err := s.enqueueBackup(ctx, v, b, first+int64(i))
		if err == nil || s.noteRefused(b, err) {
			handled++
			continue
		}
		errs = append(errs, fmt.Errorf("queue backup %s: %w", b.Name, err))
	}
	if len(fresh) < len(all) && handled > 0 {
		s.Wake() // there are more, and queueing works
	}
	return errors.Join(errs...)
}

// enqueueBackup begins the trace of a backup: its span is the root.
func (s *Scheduler) enqueueBackup(ctx context.Context, v *passView, b *velerov1.Backup, number int64) error {
	ctx, end := s.traces.beginTrace(ctx, "queue backup", b)
	err := s.updateBackup(ctx, b, velerov1.BackupPhaseNew, func(b *velerov1.Backup) error {
		return s.queueBackup(ctx, b, number, len(v.queued)+1)
	})
	if err == nil && b.Status.Phase == velerov1.BackupPhaseQueued {
		failpoint.Hit("queue-scheduler/queued")
		v.queued = append(v.queued, b)
		s.hints.announcePhase(ctx, b, string(b.Status.Phase))
	}
	end(err)
	return err
}

// queueBackup is the write New to Queued, or to FailedValidation with all that validation computed. What
// a queued backup will be is computed at admission, of the spec of its plan if it executes one.
func (s *Scheduler) queueBackup(ctx context.Context, b *velerov1.Backup, number int64, position int) error {
	planned, err := s.Validator.ApplyPlan(ctx, b)
	if err != nil {
		return err
	}
	completed := b.DeepCopy()
	problems, err := s.Validator.Backup(ctx, completed)
	if err != nil {
		return err
	}
	problems = append(planned, problems...)
	if len(problems.LastingProblems()) > 0 {
		failValidation(completed, problems.Strings())
		*b = *completed
		return nil
	}
	metav1.SetMetaDataAnnotation(&b.ObjectMeta, holdfast.AnnotationQueueSequence, strconv.FormatInt(number, 10))
	b.Status.Phase = velerov1.BackupPhaseQueued
	b.Status.QueuePosition = position
	messaging.SetTrace(ctx, b)
	failpoint.Hit("queue-scheduler/validated")
	return nil
}

func failValidation(b *velerov1.Backup, problems []string) {
	b.Status.Phase = velerov1.BackupPhaseFailedValidation
	b.Status.ValidationErrors = problems
	b.Status.QueuePosition = 0
}

// admitBackups walks the queue once, and decides from what the pass read: only a backup that may start is
// validated and asked for in the ledger. One that has to wait reserves its namespaces for those
// behind it, so that no job starves.
func (s *Scheduler) admitBackups(ctx context.Context, v *passView) error {
	if len(v.queued) == 0 {
		return nil
	}
	// The timed walk finds namespaces and locations in the view.
	s.liveNamespacesOf(ctx, v)
	for _, b := range v.queued {
		_ = s.awayErrorOf(ctx, v, b) // the walk reports it
	}
	began := s.Clock.Now()
	line := s.orderView(ctx, v)
	w := newBackupAdmission(v)
	var errs []error
	waiting := make([]*velerov1.Backup, 0, len(v.queued))
	for i, b := range v.queued {
		if line[i].Inadmissible != nil {
			waits, err := s.keepInadmissible(ctx, &line[i])
			errs = append(errs, err)
			if waits {
				waiting = append(waiting, b)
			}
			continue
		}
		if !v.isAdmitted(b.UID) {
			reason, err := s.backupObstacle(v, &line[i], w)
			if err != nil || reason != nil {
				errs = append(errs, err)
				waiting = append(waiting, b)
				continue
			}
		}
		started, err := s.startBackup(ctx, v, b, w)
		if errors.Is(err, ledger.ErrMoved) {
			waiting = append(waiting, v.queued[i:]...)
			v.moved = true
			break
		}
		switch {
		case s.noteRefused(b, err), isLocationAway(err):
			waiting = append(waiting, b) // it reserves nothing
		case err != nil:
			errs = append(errs, fmt.Errorf("admit backup %s: %w", b.Name, err))
			w.reserveFor(b.Name, line[i].Namespaces, err)
			waiting = append(waiting, b)
		case started:
			v.ready = append(v.ready, b)
		case b.Status.Phase == velerov1.BackupPhaseQueued:
			waiting = append(waiting, b)
		}
	}
	v.queued = waiting
	s.Metrics.QueueWalked(s.Clock.Since(began))
	return errors.Join(errs...)
}

// backupObstacle is why a backup that is not admitted has to wait; nil if it may start. While namespaces
// cannot be read no backup may, which is reported on the first one.
func (s *Scheduler) backupObstacle(v *passView, b *Waiting, w *admission) (reason, err error) {
	if err := v.live.err; err != nil {
		if w.blind {
			return err, nil
		}
		w.blind = true
		return nil, fmt.Errorf("admit backup %s: %w", b.Backup.Name, err)
	}
	if reason = w.obstacleFor(&ledger.Entry{Namespaces: b.Namespaces}); reason != nil {
		w.reserveFor(b.Backup.Name, b.Namespaces, reason)
		s.reasons.reportReason(b.Backup, reason)
	}
	return reason, nil
}

// startBackup admits one backup that nothing seems to be in the way of; false with b still Queued means
// that it waits all the same.
func (s *Scheduler) startBackup(ctx context.Context, v *passView, b *velerov1.Backup, w *admission) (bool, error) {
	if v.isAdmitted(b.UID) { // an admission that was cut off is completed
		stored, admitted, err := s.Ledger.Get(ctx, b.UID)
		if err != nil {
			return false, err
		}
		return s.makeReady(ctx, b, stored, admitted)
	}
	namespaces, err := s.resolveBackup(ctx, v, b)
	if err != nil {
		return false, err
	}
	if size := ledger.Size(namespaces); size > ledger.MaxNamespaces {
		return false, s.refuseBackup(ctx, b, fmt.Sprintf("spec.includedNamespaces: selects %d namespaces, which take %d bytes: at most %d can be admitted",
			len(namespaces), size, ledger.MaxNamespaces))
	}
	problems, err := s.Validator.Backup(ctx, b.DeepCopy())
	if err != nil {
		return false, err
	}
	if len(problems.LastingProblems()) > 0 {
		return false, s.refuseBackup(ctx, b, problems.Strings()...)
	}
	if len(problems) > 0 {
		return false, &awayError{problems[0].Message} // since the line was made
	}
	failpoint.Hit("queue-scheduler/before-swap")
	e := backupEntry(b, namespaces, s.Clock.Now())
	stored, err := s.Ledger.Admit(ctx, e, v.limits, w.blockingEntries()...)
	if err != nil {
		if reason := s.reasons.reportOrFail(b, err); reason != nil {
			return false, reason
		}
		w.reserveFor(b.Name, namespaces, err) // another replica was faster
		return false, nil
	}
	w.noteAdmitted(e)
	failpoint.Hit("queue-scheduler/admitted")
	return s.makeReady(ctx, b, stored, true)
}

// refuseBackup is the write Queued to FailedValidation, with all that validation computed.
func (s *Scheduler) refuseBackup(ctx context.Context, b *velerov1.Backup, problems ...string) error {
	return s.updateBackup(ctx, b, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		if _, err := s.Validator.Backup(ctx, b); err != nil {
			return err
		}
		failValidation(b, problems)
		return nil
	})
}

// failAdmission is the write Queued to FailedValidation of an admitted backup that the API server refuses
// to make ReadyToStart. It is smaller than that write: of what validation computed it has the expiration.
func (s *Scheduler) failAdmission(ctx context.Context, b *velerov1.Backup, refused error) error {
	return s.updateBackup(ctx, b, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		completed := b.DeepCopy()
		if _, err := s.Validator.Backup(ctx, completed); err != nil {
			return err
		}
		b.Status.Expiration = completed.Status.Expiration
		failValidation(b, []string{fmt.Sprintf("%v: %v", errWriteRefused, refused)})
		return nil
	})
}

// withdrawRefused gives the place of a job back that the API server refuses to write in any phase: it
// stays Queued, where no runner takes it. Other errors are returned as they are.
func (s *Scheduler) withdrawRefused(ctx context.Context, entry ledger.Entry, err error) error {
	if !kube.IsRefused(err) {
		return err
	}
	s.Wake() // a job behind it may start
	return errors.Join(err, s.Ledger.Withdraw(ctx, entry))
}

// makeReady is the write Queued to ReadyToStart, with everything computed, or to FailedValidation.
// Without an entry in the ledger (its problems vanished while we looked) the backup stays for the
// next pass. The namespaces of the entry, which an earlier pass may have made, are noted. The hint
// follows in the trace.
func (s *Scheduler) makeReady(ctx context.Context, b *velerov1.Backup, entry ledger.Entry, admitted bool) (_ bool, err error) {
	ctx, end := s.traces.resumeTrace(ctx, "admit backup", b)
	defer func() { end(err) }()
	created := b.CreationTimestamp.Time
	err = s.updateBackup(ctx, b, velerov1.BackupPhaseQueued, func(b *velerov1.Backup) error {
		problems, err := s.Validator.Backup(ctx, b)
		if err != nil {
			return err
		}
		if lasting := problems.LastingProblems(); len(lasting) > 0 {
			failValidation(b, problems.Strings())
			return nil
		}
		if !admitted {
			return kube.ErrSkip
		}
		if err := setNamespaces(b, entry.Namespaces); err != nil {
			return err
		}
		b.Status.Phase = velerov1.BackupPhaseReadyToStart
		b.Status.QueuePosition = 0
		messaging.SetTrace(ctx, b)
		failpoint.Hit("queue-scheduler/before-ready")
		return nil
	})
	if admitted && kube.IsRefused(err) { // the place is not kept for it
		if err = s.failAdmission(ctx, b, err); err == nil {
			s.Wake() // its entry is to be released
		}
		err = s.withdrawRefused(ctx, entry, err)
	}
	if err != nil || b.Status.Phase != velerov1.BackupPhaseReadyToStart {
		return false, err
	}
	failpoint.Hit("queue-scheduler/ready-written")
	s.reasons.reportAdmission(ctx, b, s.Clock.Since(created))
	s.hints.announcePhase(ctx, b, string(b.Status.Phase))
	s.hints.hintJob(ctx, b)
	return true, nil
}

// backupEntry is the entry of a backup in the ledger.
func backupEntry(b *velerov1.Backup, namespaces []string, since time.Time) ledger.Entry {
	return ledger.Entry{UID: b.UID, Kind: ledger.KindBackup, Namespace: b.Namespace, Name: b.Name, Namespaces: namespaces, Since: since}
}
