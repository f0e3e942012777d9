package queue

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// admission decides about the waiting jobs of one kind, one after the other, front first. It holds what
// runs, and the growing set of namespaces that are reserved for jobs further ahead. It makes no call: a
// pass and ExplainBackup decide by the same code.
type admission struct {
	kind     string
	limit    int
	running  []ledger.Entry
	counted  []ledger.Entry   // the running ones that count against the limit
	on       map[string][]int // which of running have a namespace; of ledger.All, every one
	whole    []int            // which of running have every namespace, but perhaps for some
	reserved *namespaceReservations
	// blockers are entries that made a job wait: while they are there, no job passed over could
	// start.
	blockers map[types.UID]bool
	full     *ledger.FullError
	blind    bool // the namespaces could not be read
}

func newAdmission(kind string, limit int, entries []ledger.Entry) *admission {
	a := &admission{kind: kind, limit: limit, on: map[string][]int{}, reserved: newReservations(), blockers: map[types.UID]bool{}}
	for _, e := range entries {
		a.noteAdmitted(e)
	}
	return a
}

// newBackupAdmission begins with what is admitted, and with the restores that wait: they go before every
// backup.
func newBackupAdmission(v *passView) *admission {
	a := newAdmission(ledger.KindBackup, v.limits.Backups, v.entries)
	for _, e := range v.unlisted {
		a.reserved.addReservation(e.Name, e.Namespaces)
	}
	for _, r := range v.pending {
		a.reserved.addReservation("restore "+r.Name, targetNamespaces(r))
	}
	return a
}

// noteAdmitted notes a job that runs from now on.
func (a *admission) noteAdmitted(e ledger.Entry) {
	index := len(a.running)
	a.on[ledger.All] = append(a.on[ledger.All], index)
	if ledger.IsAll(e.Namespaces) {
		a.whole = append(a.whole, index)
	} else {
		for _, ns := range e.Namespaces {
			a.on[ns] = append(a.on[ns], index)
		}
	}
	a.running = append(a.running, e)
	if e.Kind == a.kind && !e.Idle {
		a.counted = append(a.counted, e)
	}
}

// obstacleFor is why a job has to wait, or nil: an *ledger.OverlapError, *behindError or
// *ledger.FullError, the longest lasting first. Once one waits for a place, all behind it do.
func (a *admission) obstacleFor(e *ledger.Entry) error {
	if err := a.overlapError(e); err != nil {
		return err
	}
	if err := a.reserved.overlapError(e.Namespaces); err != nil {
		return err
	}
	if a.full == nil && a.limit > 0 && len(a.counted) >= a.limit {
		a.full = &ledger.FullError{Kind: a.kind, Limit: a.limit, Running: a.counted}
	}
	if a.full != nil {
		return a.full
	}
	return nil
}

// overlapError returns an *ledger.OverlapError that names one running job which blocks e, or nil. The cost grows with the number
// of namespaces of e; only for a job of every namespace it grows with the number of running jobs.
func (a *admission) overlapError(e *ledger.Entry) error {
	firstOf := func(indexes []int) error {
		for _, i := range indexes {
			if shared := a.running[i].Blocks(e); len(shared) > 0 {
				return &ledger.OverlapError{With: a.running[i], Namespaces: shared}
			}
		}
		return nil
	}
	if ledger.IsAll(e.Namespaces) {
		return firstOf(a.on[ledger.All])
	}
	if err := firstOf(a.whole); err != nil {
		return err
	}
	for _, ns := range e.Namespaces {
		if err := firstOf(a.on[ns]); err != nil {
			return err
		}
	}
	return nil
}

// reserveFor lets a job reserve its namespaces, so that no job behind it starves it.
func (a *admission) reserveFor(name string, namespaces []string, reason error) {
	if overlap, ok := errors.AsType[*ledger.OverlapError](reason); ok {
		a.blockers[overlap.With.UID] = true
	}
	if full, ok := errors.AsType[*ledger.FullError](reason); ok {
		a.full = full
	}
	a.reserved.addReservation(name, namespaces)
}

// blockingEntries lists the entries on which those passed over wait.
func (a *admission) blockingEntries() []types.UID {
	return slices.Collect(maps.Keys(a.blockers))
}
