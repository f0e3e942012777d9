package queue

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// releaseEnded takes out of the ledger what has run. What was listed as waiting or running keeps its
// entry; each other object is read for itself, now and uncached, before its entry goes. One that is
// gone may be run by a process that has not noticed yet: its entry stays for a claim timeout.
func (s *Scheduler) releaseEnded(ctx context.Context, v *passView) error {
	var errs []error
	var ended []ledger.Entry
	kept := v.entries[:0:0]
	for _, e := range v.entries {
		over := false
		if !v.holds[e.UID] {
			var lost bool
			var err error
			if over, lost, err = s.isJobOver(ctx, e); err != nil {
				errs = append(errs, fmt.Errorf("release %s %s: %w", e.Kind, e.Name, err))
			}
			if lost {
				over = s.Clock.Since(s.observed.firstObserved(e.UID)) >= s.ClaimTimeout
			}
		}
		if over {
			ended = append(ended, e)
		} else {
			kept = append(kept, e)
		}
	}
	if len(ended) == 0 {
		return errors.Join(errs...)
	}
	failpoint.Hit("queue-scheduler/before-release")
	if err := s.Ledger.Withdraw(ctx, ended...); err != nil {
		return errors.Join(append(errs, fmt.Errorf("release %d jobs that have ended, the first %s %s: %w", len(ended), ended[0].Kind, ended[0].Name, err))...)
	}
	failpoint.Hit("queue-scheduler/released")
	for _, e := range ended {
		delete(v.entered, e.UID)
		s.Log.Info("Released ledger entry", "kind", e.Kind, "name", e.Name)
	}
	v.entries = kept
	return errors.Join(errs...)
}

// releaseIdle gives the places of restores to others that wait for hooks and claims alone.
func (s *Scheduler) releaseIdle(ctx context.Context, v *passView) error {
	var errs []error
	for i := range v.entries {
		e := &v.entries[i]
		r := v.traced[e.UID]
		if e.Idle || r == nil || !mark.WaitsOf(r).Idle {
			continue
		}
		if err := s.Ledger.SetIdle(ctx, *e); err != nil {
			errs = append(errs, fmt.Errorf("release the place of restore %s: %w", e.Name, err))
			continue
		}
		e.Idle = true
		s.Log.InfoContext(ctx, "Restore waits only for hooks and claims; other restores may start in its place", "name", e.Name)
	}
	return errors.Join(errs...)
}

// isJobOver reports that the job of an entry is past InProgress, or gone.
func (s *Scheduler) isJobOver(ctx context.Context, e ledger.Entry) (over, gone bool, err error) {
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
	return !keepsEntry(b.Status.Phase), b.UID != e.UID, nil
}

// keepsEntry reports that a backup of this phase keeps its entry. Operations and finalizing hold up
// no other job.
func keepsEntry(phase velerov1.BackupPhase) bool {
	switch phase {
	case "", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress:
		return true
	}
	return false
}
