package queue

import (
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// restoreAdmission decides about the restores that wait, oldest first. It holds what runs, and the
// growing set of namespaces that are reserved for restores further ahead.
type restoreAdmission struct {
	limit    int
	running  []ledger.Entry
	restores []ledger.Entry // the running ones that count against the limit
	reserved *namespaceReservations
	blockers map[types.UID]bool // entries that made a job wait
}

func newRestoreAdmission(limits ledger.Limits, entries []ledger.Entry) *restoreAdmission {
	l := &restoreAdmission{limit: limits.Restores, reserved: newReservations(0), blockers: map[types.UID]bool{}}
	for _, e := range entries {
		l.noteAdmitted(e)
	}
	return l
}

// noteAdmitted notes a job that runs from now on.
func (l *restoreAdmission) noteAdmitted(e ledger.Entry) {
	l.running = append(l.running, e)
	if e.Kind == ledger.KindRestore {
		l.restores = append(l.restores, e)
	}
}

// obstacleFor is why a restore has to wait, or nil: an *ledger.OverlapError, *behindError or
// *ledger.FullError, the longest lasting first.
func (l *restoreAdmission) obstacleFor(e ledger.Entry) error {
	for i := range l.running {
		if shared := l.running[i].Blocks(&e); len(shared) > 0 {
			return &ledger.OverlapError{With: l.running[i], Namespaces: shared}
		}
	}
	if err := l.reserved.overlapError(e.Namespaces); err != nil {
		return err
	}
	if l.limit > 0 && len(l.restores) >= l.limit {
		return &ledger.FullError{Kind: ledger.KindRestore, Limit: l.limit, Running: l.restores}
	}
	return nil
}

// reserveFor lets a restore reserve its namespaces, so that no job behind it starves it.
func (l *restoreAdmission) reserveFor(r *velerov1.Restore, reason error) {
	var overlap *ledger.OverlapError
	if errors.As(reason, &overlap) {
		l.blockers[overlap.With.UID] = true
	}
	l.reserved.addReservation("restore "+r.Name, targetNamespaces(r))
}

// blockingEntries lists the entries on which those passed over wait.
func (l *restoreAdmission) blockingEntries() []types.UID {
	return slices.Collect(maps.Keys(l.blockers))
}

// restoreEntry is the entry of a restore in the ledger.
func restoreEntry(r *velerov1.Restore, now time.Time) ledger.Entry {
	return ledger.Entry{
		UID: r.UID, Kind: ledger.KindRestore, Namespace: r.Namespace, Name: r.Name, Namespaces: targetNamespaces(r), Since: now,
		IgnoreBackups: r.Annotations[holdfast.AnnotationIgnoreRunning] == "true",
	}
}

// isValidated reports that this very restore, not one it is a copy of, was validated.
func isValidated(r *velerov1.Restore) bool {
	return r.Annotations[validate.AnnotationValidated] == string(r.UID)
}

// targetNamespaces are the namespaces a restore writes to, sorted: those noted when it was validated, which
// is done once, else those of its spec alone.
func targetNamespaces(r *velerov1.Restore) []string {
	if isValidated(r) {
		if noted, ok, err := notedNamespaces(r); ok && err == nil {
			return noted
		}
	}
	return validate.Targets(&r.Spec)
}
