package queue

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// backupAdmission decides about queued backups, one after the other, front first. It holds what runs, and
// the growing set of namespaces that are reserved for backups further ahead. It makes no call: a
// pass and ExplainBackup decide by the same code.
type backupAdmission struct {
	limits   ledger.Limits
	running  []ledger.Entry
	backups  []ledger.Entry // the running ones that count against the limit
	on       map[string]int // which of running holds a namespace
	whole    []int          // which of running holds every namespace, but perhaps for some
	reserved *namespaceReservations
	// blockers are entries that made a job wait: while they are there, no job passed over could
	// start.
	blockers map[types.UID]bool
	full     *ledger.FullError
	blind    bool // the namespaces could not be read
}

// newAdmission begins with what is admitted, and with the restores that wait: they go before every
// backup.
func newAdmission(v *passView) *backupAdmission {
	w := &backupAdmission{limits: v.limits, on: map[string]int{}, reserved: newReservations(2 * len(v.queued)), blockers: map[types.UID]bool{}}
	for _, e := range v.entries {
		w.noteAdmitted(e)
	}
	for _, e := range v.unlisted {
		w.reserved.addReservation(e.Name, e.Namespaces)
	}
	for _, r := range v.pending {
		w.reserved.addReservation("restore "+r.Name, targetNamespaces(r))
	}
	return w
}

// noteAdmitted notes a job that runs from now on.
func (w *backupAdmission) noteAdmitted(e ledger.Entry) {
	if ledger.IsAll(e.Namespaces) {
		w.whole = append(w.whole, len(w.running))
	}
	for _, ns := range e.Namespaces {
		if _, held := w.on[ns]; !held { // two restores may share one
			w.on[ns] = len(w.running)
		}
	}
	w.running = append(w.running, e)
	if e.Kind == ledger.KindBackup {
		w.backups = append(w.backups, e)
	}
}

// conflictingEntry is the job that runs on one of the namespaces; nil if there is none.
func (w *backupAdmission) conflictingEntry(namespaces []string) *ledger.Entry {
	for _, i := range w.whole {
		if len(ledger.Overlap(w.running[i].Namespaces, namespaces)) > 0 {
			return &w.running[i]
		}
	}
	if ledger.IsAll(namespaces) {
		for i := range w.running {
			if len(ledger.Overlap(w.running[i].Namespaces, namespaces)) > 0 {
				return &w.running[i]
			}
		}
		return nil
	}
	for _, ns := range namespaces {
		if i, held := w.on[ns]; held {
			return &w.running[i]
		}
	}
	return nil
}

// obstacleFor is why a backup with these namespaces has to wait, or nil: an *ledger.OverlapError,
// *behindError or *ledger.FullError, the longest lasting first. Once one waits for a place, all
// behind it do.
func (w *backupAdmission) obstacleFor(namespaces []string) error {
	if e := w.conflictingEntry(namespaces); e != nil {
		return &ledger.OverlapError{With: *e, Namespaces: ledger.Overlap(e.Namespaces, namespaces)}
	}
	if err := w.reserved.overlapError(namespaces); err != nil {
		return err
	}
	if w.full == nil && w.limits.Backups > 0 && len(w.backups) >= w.limits.Backups {
		w.full = &ledger.FullError{Kind: ledger.KindBackup, Limit: w.limits.Backups, Running: w.backups}
	}
	if w.full != nil {
		return w.full
	}
	return nil
}

// reserveFor lets a backup reserve its namespaces, so that no job behind it starves it.
func (w *backupAdmission) reserveFor(name string, namespaces []string, reason error) {
	why := causeOf(reason)
	switch {
	case why.overlap != nil:
		w.blockers[why.overlap.With.UID] = true
	case why.full != nil:
		w.full = why.full
	}
	w.reserved.addReservation(name, namespaces)
}

// blockingEntries lists the entries on which those passed over wait.
func (w *backupAdmission) blockingEntries() []types.UID {
	out := make([]types.UID, 0, len(w.blockers))
	for uid := range w.blockers {
		out = append(out, uid)
	}
	return out
}
