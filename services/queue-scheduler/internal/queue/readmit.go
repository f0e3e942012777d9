package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// job is a running backup or restore: one of the two is set.
type job struct {
	backup  *velerov1.Backup
	restore *velerov1.Restore
}

func (j job) object() client.Object {
	if j.restore != nil {
		return j.restore
	}
	return j.backup
}

func (j job) kind() string {
	if j.restore != nil {
		return ledger.KindRestore
	}
	return ledger.KindBackup
}

// expect notes a running job that the ledger, as it was read, does not list.
func (v *view) expect(j job) {
	if !v.admitted(j.object().GetUID()) {
		v.orphans = append(v.orphans, j)
	}
}

// readmit enters running jobs into the ledger again after a user deleted it: without an entry no
// runner takes them. Neither limits nor overlaps count for those that run already. While it fails
// nothing may be admitted.
func (a *adopter) readmit(ctx context.Context, v *view) error {
	var errs []error
	for _, j := range v.orphans {
		if foreign(j) {
			if err := a.adopt(ctx, v, j); err != nil { // no process works on it, so nothing has to wait for that
				a.log.WarnContext(ctx, "job of another server not adopted yet", "kind", j.kind(), "name", j.object().GetName(), "error", err)
			}
			continue
		}
		if err := a.readmitOne(ctx, v, j); err != nil {
			errs = append(errs, fmt.Errorf("readmit %s %s: %w", j.kind(), j.object().GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func (a *adopter) readmitOne(ctx context.Context, v *view, j job) error {
	o := j.object()
	e := ledger.Entry{UID: o.GetUID(), Kind: j.kind(), Namespace: o.GetNamespace(), Name: o.GetName(), Since: a.clock.Now()}
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
	if over, gone, err := a.releaser.over(ctx, unlisted); over || gone || err != nil {
		return err
	}
	a.log.Warn("running job was not in the ledger", "kind", e.Kind, "name", e.Name)
	if j.runs() {
		err := a.ledger.Readmit(ctx, e)
		if err == nil {
			v.enter(e)
		}
		return err
	}
	if err := a.ledger.Admit(ctx, e, ledger.Limits{}); err != nil {
		v.unlisted = append(v.unlisted, e)
		return a.reasons.reportOrFail(o, err)
	}
	v.enter(e)
	return nil
}

// runs reports that a process works on the job: one that was only admitted can wait for others once
// more, since no runner takes it without its entry.
func (j job) runs() bool {
	return j.restore != nil || j.backup.Status.Phase == velerov1.BackupPhaseInProgress
}

// admittedFor returns the namespaces a backup was admitted for: a takeover must not collect others,
// though patterns may match more by now.
func (a *adopter) admittedFor(ctx context.Context, v *view, b *velerov1.Backup) ([]string, error) {
	namespaces, noted, err := notedNamespaces(b)
	if noted {
		return namespaces, nil
	}
	if err != nil {
		a.log.WarnContext(ctx, "admitted namespaces not readable, resolving them anew", "backup", b.Name, "error", err)
	}
	return a.resolver.resolve(ctx, v, b)
}
