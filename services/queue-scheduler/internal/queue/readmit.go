package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// expectJob notes a running job that the ledger, as it was read, does not list.
func (v *passView) expectJob(j client.Object) {
	if !v.isAdmitted(j.GetUID()) {
		v.orphans = append(v.orphans, j)
	}
}

// readmitJobs enters running jobs into the ledger again after a user deleted it: without an entry no
// runner takes them. Neither limits nor overlaps count for those that run already. While it fails
// nothing may be admitted. Jobs that another server began are ended by runners, without an entry.
func (s *Scheduler) readmitJobs(ctx context.Context, v *passView) error {
	var errs []error
	for _, j := range v.orphans {
		if mark.IsForeign(j) {
			b, isBackup := j.(*velerov1.Backup)
			if !isBackup || b.Status.Phase != velerov1.BackupPhaseReadyToStart {
				continue
			}
			if err := s.requeueBackup(ctx, v, b); err != nil { // no process works on it, so no job waits for it
				s.Log.WarnContext(ctx, "Failed to queue backup of another server; will retry", "namespace", b.Namespace, "name", b.Name, "error", err)
			}
			continue
		}
		if err := s.readmitOne(ctx, v, j); err != nil {
			errs = append(errs, fmt.Errorf("readmit %s %s: %w", kindOf(j), j.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// requeueBackup makes a backup New that another server left in ReadyToStart, unless that server lives. It
// is validated and queued like any other.
func (s *Scheduler) requeueBackup(ctx context.Context, v *passView, b *velerov1.Backup) error {
	server, err := mark.FindForeignServer(ctx, s.Reader, b.Namespace)
	if server != "" || err != nil {
		return err
	}
	err = kube.Update(ctx, s.Reader, s.Client, b, func(b *velerov1.Backup) error {
		if b.DeletionTimestamp != nil || b.Status.Phase != velerov1.BackupPhaseReadyToStart || !mark.IsForeign(b) {
			return kube.ErrSkip
		}
		b.Status.Phase, b.Status.QueuePosition = velerov1.BackupPhaseNew, 0
		return nil
	})
	switch {
	case apierrors.IsNotFound(err), errors.Is(err, kube.ErrReplaced):
		return nil
	case err != nil || !b.Status.Phase.IsNew():
		return err
	}
	s.Log.InfoContext(ctx, "Queued backup that another server left in ReadyToStart", "namespace", b.Namespace, "name", b.Name)
	v.fresh = append(v.fresh, b)
	return nil
}

func (s *Scheduler) readmitOne(ctx context.Context, v *passView, j client.Object) error {
	var e ledger.Entry
	running := true // a job that was only admitted can wait again, since no runner takes it without its entry
	switch j := j.(type) {
	case *velerov1.Restore:
		e = restoreEntry(j, s.Clock.Now())
	case *velerov1.Backup:
		namespaces, err := s.admittedFor(ctx, v, j)
		if err != nil {
			return err
		}
		e = backupEntry(j, namespaces, s.Clock.Now())
		running = j.Status.Phase == velerov1.BackupPhaseInProgress
	}
	unlisted := e
	unlisted.Since = time.Time{}
	if over, gone, err := s.isJobOver(ctx, unlisted); over || gone || err != nil {
		return err
	}
	s.Log.Warn("Admitted job is missing from the ledger; adding it again", "kind", e.Kind, "name", e.Name)
	if running {
		err := s.Ledger.Readmit(ctx, e)
		if err == nil {
			v.noteEntered(e)
		}
		return err
	}
	if _, err := s.Ledger.Admit(ctx, e, ledger.Limits{}); err != nil {
		v.unlisted = append(v.unlisted, e)
		return s.reasons.reportOrFail(j, err)
	}
	v.noteEntered(e)
	return nil
}

// admittedFor returns the namespaces a backup was admitted for: a takeover must not collect others,
// though patterns may match more by now.
func (s *Scheduler) admittedFor(ctx context.Context, v *passView, b *velerov1.Backup) ([]string, error) {
	namespaces, noted, err := notedNamespaces(b)
	if noted {
		return namespaces, nil
	}
	if err != nil {
		s.Log.WarnContext(ctx, "Failed to read the admitted namespaces of a backup; resolving them again", "backup", b.Name, "error", err)
	}
	return s.resolveBackup(ctx, v, b)
}
