package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// foreign reports whether another server brought a job to ReadyToStart or InProgress: what this
// one admits was numbered or validated by it, and what its runners work on is claimed.
func foreign(j job) bool {
	annotations := j.object().GetAnnotations()
	if _, claimed := annotations[holdfast.AnnotationClaim]; claimed {
		return false
	}
	if j.restore != nil {
		return !validated(j.restore)
	}
	_, numbered := annotations[holdfast.AnnotationQueueSequence]
	return !numbered
}

// adopter enters jobs into the ledger that run without an entry: those of another server, and those
// whose entry was deleted. Only passes use it.
type adopter struct {
	reader    client.Reader
	client    client.Client
	validator Validator
	ledger    Ledger
	metrics   Metrics
	clock     clock.PassiveClock
	log       *slog.Logger

	resolver    *resolver
	targetReads *targetReads
	releaser    *releaser
	reasons     *reasons
	hints       *hints
}

// adopt takes over a job that another server left, if this one can do what its spec requires: it is
// validated and enters the ledger as if it had waited, beside nothing that it overlaps. Else it
// ends, and returns why.
func (a *adopter) adopt(ctx context.Context, v *view, j job) error {
	if j.restore != nil {
		return a.adoptRestore(ctx, v, j.restore)
	}
	return a.adoptBackup(ctx, v, j.backup)
}

func (a *adopter) adoptBackup(ctx context.Context, v *view, b *velerov1.Backup) error {
	all, err := a.validator.Backup(ctx, b.DeepCopy())
	if err != nil {
		return err
	}
	problems := all.Lasting()
	if len(problems) == 0 && len(all) > 0 {
		return &awayError{all[0].Message} // it is looked at again
	}
	e := ledger.Entry{UID: b.UID, Kind: ledger.KindBackup, Namespace: b.Namespace, Name: b.Name, Since: a.clock.Now()}
	if len(problems) == 0 {
		if e.Namespaces, err = a.resolver.resolve(ctx, v, b); err != nil {
			return err
		}
		if admitted, err := a.admitForeign(ctx, v, job{backup: b}, e); !admitted {
			return err
		}
	}
	err = kube.Update(ctx, a.reader, a.client, b, func(b *velerov1.Backup) error {
		running := b.Status.Phase == velerov1.BackupPhaseInProgress
		if b.DeletionTimestamp != nil || !running && b.Status.Phase != velerov1.BackupPhaseReadyToStart || !foreign(job{backup: b}) {
			return kube.ErrSkip
		}
		switch {
		case len(problems) == 0:
			if _, err := a.validator.Backup(ctx, b); err != nil {
				return err
			}
			return setNamespaces(b, e.Namespaces)
		case running:
			now := metav1.NewTime(a.clock.Now())
			b.Status.Phase, b.Status.CompletionTimestamp = velerov1.BackupPhaseFailed, &now
			b.Status.FailureReason, b.Status.ValidationErrors = notAdopted(problems), problems.Strings()
		default:
			refuse(b, problems.Strings())
		}
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		return nil
	}
	if err == nil && len(problems) > 0 {
		a.metrics.Ended(b)
		a.log.InfoContext(ctx, "backup of another server not adopted", "backup", b.Name, "problems", problems.Strings())
		a.hints.announce(ctx, "Backup", b, string(b.Status.Phase))
	}
	return err
}

func (a *adopter) adoptRestore(ctx context.Context, v *view, r *velerov1.Restore) error {
	checked := r.DeepCopy()
	problems, err := a.checkForeign(ctx, checked)
	if err != nil {
		return err
	}
	e := restoreEntry(r, a.clock.Now())
	if len(problems) == 0 {
		if e.Namespaces, err = a.targetReads.findTargets(ctx, checked); err != nil {
			return err
		}
		if admitted, err := a.admitForeign(ctx, v, job{restore: r}, e); !admitted {
			return err
		}
	}
	err = kube.Update(ctx, a.reader, a.client, r, func(r *velerov1.Restore) error {
		if r.DeletionTimestamp != nil || r.Status.Phase != velerov1.RestorePhaseInProgress || !foreign(job{restore: r}) {
			return kube.ErrSkip
		}
		if len(problems) == 0 {
			r.Spec, r.Finalizers = *checked.Spec.DeepCopy(), checked.Finalizers
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, validate.AnnotationValidated, string(r.UID))
			return setNamespaces(r, e.Namespaces)
		}
		now := metav1.NewTime(a.clock.Now())
		r.Status.Phase, r.Status.CompletionTimestamp = velerov1.RestorePhaseFailed, &now
		r.Status.FailureReason, r.Status.ValidationErrors = notAdopted(problems), problems.Strings()
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, kube.ErrReplaced) {
		return nil
	}
	if err == nil && len(problems) > 0 {
		a.metrics.Ended(r)
		a.log.InfoContext(ctx, "restore of another server not adopted", "restore", r.Name, "problems", problems.Strings())
		a.hints.announce(ctx, "Restore", r, string(r.Status.Phase))
	}
	return err
}

// checkForeign completes and validates a restore whose spec another server completed: that names
// the schedule of the backup beside the backup.
func (a *adopter) checkForeign(ctx context.Context, r *velerov1.Restore) (validate.Problems, error) {
	schedule := r.Spec.ScheduleName
	if r.Spec.BackupName != "" {
		r.Spec.ScheduleName = ""
	}
	problems, err := a.validator.Restore(ctx, r)
	r.Spec.ScheduleName = schedule
	return problems, err
}

// admitForeign enters a job into the ledger. One that overlaps others waits for them: no process
// works on it, in any phase.
func (a *adopter) admitForeign(ctx context.Context, v *view, j job, e ledger.Entry) (bool, error) {
	if err := a.ledger.Admit(ctx, e, ledger.Limits{}); err != nil {
		v.unlisted = append(v.unlisted, e)
		return false, a.reasons.reportOrFail(j.object(), err)
	}
	v.enter(e)
	a.log.InfoContext(ctx, "job of another server adopted", "kind", e.Kind, "name", e.Name)
	return true, nil
}

// notAdopted is why a job that another server had begun ends as Failed.
func notAdopted(problems validate.Problems) string {
	return fmt.Sprintf("another server began it, and this one cannot go on: %s", strings.Join(problems.Strings(), "; "))
}
