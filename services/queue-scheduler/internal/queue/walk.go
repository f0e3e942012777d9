package queue

import (
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// walk is one walk along the queue, front first. It knows what holds places and
// namespaces, and the growing set that belongs to those who wait further ahead.
// It asks nobody: the same walk decides in a pass and explains to a reader.
type walk struct {
	limits  ledger.Limits
	running []ledger.Entry
	backups []ledger.Entry // the running ones that count against the limit
	claimed *claims
	// standing are entries that made somebody wait: while they stand, no job
	// passed over could start.
	standing map[types.UID]bool
	full     *ledger.FullError
}

// newWalk begins with what is admitted, and with the restores that wait: they go
// before every backup.
func (s *Scheduler) newWalk(v *view) *walk {
	w := &walk{limits: s.Limits, claimed: newClaims(s.claim), standing: map[types.UID]bool{}}
	for _, e := range v.entries {
		w.admit(e)
	}
	for _, r := range v.pending {
		w.claimed.add("restore "+r.Name, targets(r))
	}
	return w
}

// admit notes a job that runs from now on.
func (w *walk) admit(e ledger.Entry) {
	w.running = append(w.running, e)
	if e.Kind == ledger.KindBackup {
		w.backups = append(w.backups, e)
	}
}

// verdict is why a backup with these namespaces has to wait, or nil: an
// *ledger.OverlapError, *behindError or *ledger.FullError, the longest lasting
// first. Once one waits for a place, all behind it do.
func (w *walk) verdict(namespaces []string) error {
	for _, e := range w.running {
		if shared := ledger.Overlap(e.Namespaces, namespaces); len(shared) > 0 {
			return &ledger.OverlapError{With: e, Namespaces: shared}
		}
	}
	if err := w.claimed.overlap(namespaces); err != nil {
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

// wait lets a backup claim its namespaces, so that nobody behind it starves it.
func (w *walk) wait(name string, namespaces []string, reason error) {
	var overlap *ledger.OverlapError
	var full *ledger.FullError
	switch {
	case errors.As(reason, &overlap):
		w.standing[overlap.With.UID] = true
	case errors.As(reason, &full):
		w.full = full
	}
	w.claimed.add(name, namespaces)
}

// while lists the entries on which those passed over wait.
func (w *walk) while() []types.UID {
	out := make([]types.UID, 0, len(w.standing))
	for uid := range w.standing {
		out = append(out, uid)
	}
	return out
}
