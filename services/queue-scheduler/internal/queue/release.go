package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// release takes out of the ledger what has run. What was listed as waiting or
// running keeps its entry; each other object is read for itself, now and uncached,
// before its entry goes. One that is gone may be run by somebody who does not know
// yet: its entry stays for a claim timeout, unless its runner takes it out before.
func (s *Scheduler) release(ctx context.Context, v *view) error {
	var errs []error
	kept := v.entries[:0:0]
	gone := make(map[types.UID]time.Time, len(s.gone))
	for _, e := range v.entries {
		if v.holds[e.UID] {
			kept = append(kept, e)
			continue
		}
		over, lost, err := s.over(ctx, e)
		if err == nil && lost {
			gone[e.UID] = s.goneSince(e)
			over = s.Clock.Since(gone[e.UID]) >= s.ClaimTimeout
		}
		if err == nil && over {
			failpoint.Hit("queue-scheduler/before-release")
			err = s.Ledger.Withdraw(ctx, e)
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
	v.entries, s.gone = kept, gone
	return errors.Join(errs...)
}

// goneSince is when this process first did not find the object of an entry: it
// counts itself, for clocks differ.
func (s *Scheduler) goneSince(e ledger.Entry) time.Time {
	since, known := s.gone[e.UID]
	if !known {
		since = s.Clock.Now()
		s.Log.Info("admitted job is gone, its entry stays until its runner has stopped", "kind", e.Kind, "name", e.Name)
	}
	return since
}

// over tells that the job of an entry is past InProgress or suspended, or gone.
func (s *Scheduler) over(ctx context.Context, e ledger.Entry) (over, gone bool, err error) {
	key := client.ObjectKey{Namespace: e.Namespace, Name: e.Name}
	if e.Kind == ledger.KindRestore {
		r := &velerov1.Restore{}
		if err := s.Reader.Get(ctx, key, r); err != nil {
			return false, apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
		return !r.Status.Phase.IsNew() && r.Status.Phase != velerov1.RestorePhaseInProgress, r.UID != e.UID, nil
	}
	b := &velerov1.Backup{}
	if err := s.Reader.Get(ctx, key, b); err != nil {
		return false, apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	return !slices.Contains(s.holding, b.Status.Phase) || suspendedUnder(b, e.Since), b.UID != e.UID, nil
}

// beforeOver are the phases in which a backup keeps its entry. Operations and
// finalizing hold up nobody.
func beforeOver() []velerov1.BackupPhase {
	return []velerov1.BackupPhase{
		"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
	}
}
