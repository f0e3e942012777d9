package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
)

// Waiting is a queued backup with what its place in the queue depends on.
type Waiting struct {
	Backup *velerov1.Backup
	// Namespaces it would be admitted for, sorted; [ledger.All] for every one.
	Namespaces []string
	// Class is set by Order: its own class raised by ageing, or the higher one of a backup behind it
	// that overlaps with it (priority inheritance).
	Class validate.Priority
	// Inadmissible is why it is not in the queue but behind all others; nil if it is in it.
	Inadmissible error

	sequence int64
}

// Order sorts queued backups into the order of the queue, front first: by class, then by sequence
// number. A backup never comes before one of a lower number that it overlaps with: the one ahead
// takes its class over instead. Every ageing of waiting since its creation raises the class of a
// backup by one (0 is never). Restores wait oldest first (view.look) and go before all of these.
// The order is total, so every reader of the same backups finds the same.
func Order(waiting []Waiting, ageing time.Duration, now time.Time) {
	for i := range waiting {
		waiting[i].sequence = sequenceNumber(waiting[i].Backup)
	}
	slices.SortFunc(waiting, func(a, b Waiting) int {
		if a.sequence != b.sequence {
			return cmp.Compare(a.sequence, b.sequence)
		}
		return compareAge(a.Backup, b.Backup)
	})
	inOrder := true
	for i := range waiting {
		w := &waiting[i]
		class, _ := validate.PriorityOf(w.Backup.Annotations) // validation reports a bad one
		w.Class = class.AgedClass(now.Sub(w.Backup.CreationTimestamp.Time), ageing)
		inOrder = inOrder && (i == 0 || waiting[i-1].Class >= w.Class)
	}
	if inOrder {
		return // no job behind is more urgent, so there is nothing to inherit
	}
	l := classInheritance{on: make(map[string]validate.Priority, 2*len(waiting)), everything: validate.PriorityLow, any: validate.PriorityLow}
	for i := range slices.Backward(waiting) {
		l.inheritClass(&waiting[i])
	}
	slices.SortStableFunc(waiting, func(a, b Waiting) int { return cmp.Compare(b.Class, a.Class) })
}

// classInheritance is the highest class among the backups seen so far, on each namespace.
type classInheritance struct {
	on         map[string]validate.Priority
	everything validate.Priority // of those that take every namespace
	any        validate.Priority // of all
}

func (l *classInheritance) inheritClass(w *Waiting) {
	all := ledger.IsAll(w.Namespaces)
	w.Class = max(w.Class, l.everything)
	if all {
		w.Class = max(w.Class, l.any)
		l.everything = w.Class
	} else {
		for _, ns := range w.Namespaces {
			if class, ok := l.on[ns]; ok {
				w.Class = max(w.Class, class)
			}
		}
		for _, ns := range w.Namespaces {
			l.on[ns] = w.Class
		}
	}
	l.any = max(l.any, w.Class)
}

// orderView brings the queued backups of a view into the order of the queue, and returns it.
func (s *Scheduler) orderView(ctx context.Context, v *passView) []Waiting {
	line := s.queueLine(ctx, v)
	for i := range line {
		v.queued[i] = line[i].Backup
	}
	return line
}

// queueLine is the order of the queue for the queued backups of a view. While their namespaces cannot be
// read they count as overlapping, and keep their order. Inadmissible ones come last, in an
// order of their own.
func (s *Scheduler) queueLine(ctx context.Context, v *passView) []Waiting {
	if len(v.spaces) == 0 {
		v.spaces = make(map[types.UID][]string, len(v.queued))
	}
	waiting := make([]Waiting, 0, len(v.queued))
	var inadmissible []Waiting
	for _, b := range v.queued {
		namespaces, err := s.resolveBackup(ctx, v, b)
		if err != nil {
			namespaces = []string{ledger.All}
		}
		w := Waiting{Backup: b, Namespaces: namespaces, Inadmissible: s.inadmissibleReason(ctx, v, b)}
		if w.Inadmissible != nil {
			inadmissible = append(inadmissible, w)
		} else {
			waiting = append(waiting, w)
		}
	}
	Order(waiting, s.Ageing, s.Clock.Now())
	Order(inadmissible, s.Ageing, s.Clock.Now())
	return append(waiting, inadmissible...)
}
