package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// runningJob is a running backup or restore: one of the two is set.
type runningJob struct {
	backup  *velerov1.Backup
	restore *velerov1.Restore
}

func (j runningJob) clientObject() client.Object {
	if j.restore != nil {
		return j.restore
	}
	return j.backup
}

func (j runningJob) kindName() string {
	if j.restore != nil {
		return ledger.KindRestore
	}
	return ledger.KindBackup
}

// expectJob notes a running job that the ledger, as it was read, does not list.
func (v *passView) expectJob(j runningJob) {
	if !v.isAdmitted(j.clientObject().GetUID()) {
		v.orphans = append(v.orphans, j)
	}
}

// readmitter brings running jobs without a ledger entry back: those whose entry was deleted, and
// backups that another server left in ReadyToStart. Only passes use it.
type readmitter struct {
	reader client.Reader
	client client.Client
	ledger Ledger
	clock  clock.PassiveClock
	log    *slog.Logger

	resolver *namespaceResolver
	releaser *entryReleaser
	reasons  *waitReasons
}

// readmit enters running jobs into the ledger again after a user deleted it: without an entry no
// runner takes them. Neither limits nor overlaps count for those that run already. While it fails
// nothing may be admitted. Jobs that another server began are ended by runners, without an entry.
func (a *readmitter) readmit(ctx context.Context, v *passView) error {
	var errs []error
	for _, j := range v.orphans {
		if mark.IsForeign(j.clientObject()) {
			if err := a.requeue(ctx, v, j.backup); err != nil { // no process works on it, so no job waits for it
				a.log.WarnContext(ctx, "Failed to queue backup of another server; will retry", "namespace", j.backup.Namespace, "name", j.backup.Name, "error", err)
			}
			continue
		}
		if err := a.readmitOne(ctx, v, j); err != nil {
			errs = append(errs, fmt.Errorf("readmit %s %s: %w", j.kindName(), j.clientObject().GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// requeue makes a backup New that another server left in ReadyToStart, unless that server lives. It
// is validated and queued like any other.
func (a *readmitter) requeue(ctx context.Context, v *passView, b *velerov1.Backup) error {
	if b == nil || b.Status.Phase != velerov1.BackupPhaseReadyToStart {
		return nil
	}
	server, err := mark.FindForeignServer(ctx, a.reader, b.Namespace)
	if server != "" || err != nil {
		return err
	}
	err = kube.Update(ctx, a.reader, a.client, b, func(b *velerov1.Backup) error {
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
	a.log.InfoContext(ctx, "Queueing backup that another server left in ReadyToStart", "namespace", b.Namespace, "name", b.Name)
	v.fresh = append(v.fresh, b)
	return nil
}

func (a *readmitter) readmitOne(ctx context.Context, v *passView, j runningJob) error {
	o := j.clientObject()
	e := ledger.Entry{UID: o.GetUID(), Kind: j.kindName(), Namespace: o.GetNamespace(), Name: o.GetName(), Since: a.clock.Now()}
	if j.restore != nil {
		e = restoreEntry(j.restore, a.clock.Now())
	} else {
		namespaces, err := a.admittedFor(ctx, v, j.backup)
		if err != nil {
			return err
		}
		e.Namespaces = namespaces
	}
	unlisted := e
	unlisted.Since = time.Time{}
	if over, gone, err := a.releaser.isOver(ctx, unlisted); over || gone || err != nil {
		return err
	}
	a.log.Warn("running job was not in the ledger", "kind", e.Kind, "name", e.Name)
	if j.isRunning() {
		err := a.ledger.Readmit(ctx, e)
		if err == nil {
			v.noteEntered(e)
		}
		return err
	}
	if err := a.ledger.Admit(ctx, e, ledger.Limits{}); err != nil {
		v.unlisted = append(v.unlisted, e)
		return a.reasons.reportOrFail(o, err)
	}
	v.noteEntered(e)
	return nil
}

// isRunning reports that a process works on the job: one that was only admitted can wait for others once
// more, since no runner takes it without its entry.
func (j runningJob) isRunning() bool {
	return j.restore != nil || j.backup.Status.Phase == velerov1.BackupPhaseInProgress
}

// admittedFor returns the namespaces a backup was admitted for: a takeover must not collect others,
// though patterns may match more by now.
func (a *readmitter) admittedFor(ctx context.Context, v *passView, b *velerov1.Backup) ([]string, error) {
	namespaces, noted, err := notedNamespaces(b)
	if noted {
		return namespaces, nil
	}
	if err != nil {
		a.log.WarnContext(ctx, "admitted namespaces not readable, resolving them anew", "backup", b.Name, "error", err)
	}
	return a.resolver.resolveBackup(ctx, v, b)
}
