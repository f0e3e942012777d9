package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// release takes out of the ledger what has run. What was listed as waiting or
// running keeps its entry; each other object is read for itself, now and uncached,
// before its entry goes.
func (s *Scheduler) release(ctx context.Context, v *view) error {
	var errs []error
	kept := v.entries[:0:0]
	for _, e := range v.entries {
		if v.holds[e.UID] {
			kept = append(kept, e)
			continue
		}
		over, err := s.over(ctx, e)
		if err == nil && over {
			failpoint.Hit("queue-scheduler/before-release")
			err = s.Ledger.Release(ctx, e.UID)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("release %s %s: %w", e.Kind, e.Name, err))
		}
		if err != nil || !over {
			kept = append(kept, e)
		} else {
			failpoint.Hit("queue-scheduler/released")
			delete(v.entered, e.UID)
			s.Log.Info("ledger entry released", "kind", e.Kind, "name", e.Name)
		}
	}
	v.entries = kept
	return errors.Join(errs...)
}

// over tells that the job of an entry is gone or past InProgress.
func (s *Scheduler) over(ctx context.Context, e ledger.Entry) (bool, error) {
	key := client.ObjectKey{Namespace: e.Namespace, Name: e.Name}
	if e.Kind == ledger.KindRestore {
		r := &velerov1.Restore{}
		if err := s.Reader.Get(ctx, key, r); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
		return r.UID != e.UID || !r.Status.Phase.IsNew() && r.Status.Phase != velerov1.RestorePhaseInProgress, nil
	}
	b := &velerov1.Backup{}
	if err := s.Reader.Get(ctx, key, b); err != nil {
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return b.UID != e.UID || !slices.Contains(s.holding, b.Status.Phase), nil
}

// beforeOver are the phases in which a backup keeps its entry. Operations and
// finalizing hold up nobody.
func beforeOver() []velerov1.BackupPhase {
	return []velerov1.BackupPhase{
		"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
	}
}
