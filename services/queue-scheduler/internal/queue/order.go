package queue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/priority"
)

// Waiting is a queued backup with what its place in the queue depends on.
type Waiting struct {
	Backup *velerov1.Backup
	// Namespaces it would be admitted for, sorted; [ledger.All] for every one.
	Namespaces []string
	// Class is set by Order: its own class raised by ageing, or the higher one of a backup behind it
	// that overlaps with it (priority inheritance).
	Class priority.Class
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
		waiting[i].sequence = sequence(waiting[i].Backup)
	}
	slices.SortFunc(waiting, func(a, b Waiting) int {
		if a.sequence != b.sequence {
			return cmp.Compare(a.sequence, b.sequence)
		}
		return older(a.Backup, b.Backup)
	})
	inOrder := true
	for i := range waiting {
		w := &waiting[i]
		class, _ := priority.Of(w.Backup.Annotations) // validation reports a bad one
		w.Class = class.After(now.Sub(w.Backup.CreationTimestamp.Time), ageing)
		inOrder = inOrder && (i == 0 || waiting[i-1].Class >= w.Class)
	}
	if inOrder {
		return // no job behind is more urgent, so there is nothing to inherit
	}
	l := inheritance{on: make(map[string]priority.Class, 2*len(waiting)), everything: priority.Low, any: priority.Low}
	for i := range slices.Backward(waiting) {
		l.inherit(&waiting[i])
	}
	slices.SortStableFunc(waiting, func(a, b Waiting) int { return cmp.Compare(b.Class, a.Class) })
}

// inheritance is the highest class among the backups seen so far, on each namespace.
type inheritance struct {
	on         map[string]priority.Class
	everything priority.Class // of those that take every namespace
	any        priority.Class // of all
}

func (l *inheritance) inherit(w *Waiting) {
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

// ordering makes the order of the queue.
type ordering struct {
	resolver     *resolver
	inadmissible *inadmissible
	ageing       time.Duration
	clock        clock.PassiveClock
}

// order brings the queued backups of a view into the order of the queue, and returns it.
func (l *ordering) order(ctx context.Context, v *view) []Waiting {
	line := l.line(ctx, v)
	for i := range line {
		v.queued[i] = line[i].Backup
	}
	return line
}

// line is the order of the queue for the queued backups of a view. While their namespaces cannot be
// read they count as overlapping, and keep their order. Inadmissible ones come last, in an
// order of their own.
func (l *ordering) line(ctx context.Context, v *view) []Waiting {
	if len(v.spaces) == 0 {
		v.spaces = make(map[types.UID][]string, len(v.queued))
	}
	waiting := make([]Waiting, 0, len(v.queued))
	var inadmissible []Waiting
	for _, b := range v.queued {
		namespaces, err := l.resolver.resolve(ctx, v, b)
		if err != nil {
			namespaces = []string{ledger.All}
		}
		w := Waiting{Backup: b, Namespaces: namespaces, Inadmissible: l.inadmissible.reason(ctx, v, b)}
		if w.Inadmissible != nil {
			inadmissible = append(inadmissible, w)
		} else {
			waiting = append(waiting, w)
		}
	}
	Order(waiting, l.ageing, l.clock.Now())
	Order(inadmissible, l.ageing, l.clock.Now())
	return append(waiting, inadmissible...)
}
