package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/ledger"
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

// readmit enters running jobs into the ledger again after somebody deleted it:
// without an entry no runner takes them. Neither limits nor overlaps count for those
// that run already. While it fails nothing may be admitted.
func (s *Scheduler) readmit(ctx context.Context, v *view) error {
	var errs []error
	for _, j := range v.orphans {
		if foreign(j) {
			if err := s.adopt(ctx, v, j); err != nil { // nobody works on it, so nothing has to wait for that
				s.Log.WarnContext(ctx, "job of another server not adopted yet", "kind", j.kind(), "name", j.object().GetName(), "error", err)
			}
			continue
		}
		if err := s.readmitOne(ctx, v, j); err != nil {
			errs = append(errs, fmt.Errorf("readmit %s %s: %w", j.kind(), j.object().GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func (s *Scheduler) readmitOne(ctx context.Context, v *view, j job) error {
	o := j.object()
	e := ledger.Entry{UID: o.GetUID(), Kind: j.kind(), Namespace: o.GetNamespace(), Name: o.GetName(), Since: s.Clock.Now()}
	if j.restore != nil {
		e = s.restoreEntry(j.restore)
	} else {
		namespaces, err := s.admittedFor(ctx, v, j.backup)
		if err != nil {
			return err
		}
		e.Namespaces = namespaces
	}
	unlisted := e
	unlisted.Since = time.Time{}
	if over, gone, err := s.over(ctx, unlisted); over || gone || err != nil {
		return err
	}
	s.Log.Warn("running job was not in the ledger", "kind", e.Kind, "name", e.Name)
	if j.runs() {
		err := s.Ledger.Readmit(ctx, e)
		if err == nil {
			v.enter(e)
		}
		return err
	}
	if err := s.Ledger.Admit(ctx, e, ledger.Limits{}); err != nil {
		v.unlisted = append(v.unlisted, e)
		return s.waitOrFail(o, err)
	}
	v.enter(e)
	return nil
}

// runs tells that somebody works on the job: one that was only admitted can wait
// for others once more, since no runner takes it without its entry.
func (j job) runs() bool {
	return j.restore != nil || j.backup.Status.Phase == velerov1.BackupPhaseInProgress
}

// admittedFor returns the namespaces a backup was admitted for: a takeover must
// not collect others, though patterns may match more by now.
func (s *Scheduler) admittedFor(ctx context.Context, v *view, b *velerov1.Backup) ([]string, error) {
	namespaces, noted, err := notedNamespaces(b)
	if noted {
		return namespaces, nil
	}
	if err != nil {
		s.Log.WarnContext(ctx, "admitted namespaces not readable, resolving them anew", "backup", b.Name, "error", err)
	}
	return s.resolve(ctx, v, b)
}
