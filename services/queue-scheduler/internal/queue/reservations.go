package queue

import (
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// namespaceReservations is the growing set of namespaces that belong to jobs waiting further ahead, with the
// job each belongs to.
type namespaceReservations struct {
	owner map[string]string
	list  []behindError // every reservation, in order
	whole []behindError // of every namespace, but perhaps for some; each set once
}

func newReservations() *namespaceReservations {
	return &namespaceReservations{owner: map[string]string{}}
}

// behindError means that a job waits further ahead for the same namespaces.
type behindError struct {
	name       string
	namespaces []string
}

// Error implements error.
func (e *behindError) Error() string {
	return fmt.Sprintf("%s is ahead in the queue and waits for namespaces %v too", e.name, e.namespaces)
}

// addReservation reserves every namespace of a job that waits.
func (r *namespaceReservations) addReservation(name string, namespaces []string) {
	if len(namespaces) > 0 {
		r.list = append(r.list, behindError{name, namespaces})
	}
	if ledger.IsAll(namespaces) {
		known := func(o behindError) bool { return slices.Equal(o.namespaces, namespaces) }
		if !slices.ContainsFunc(r.whole, known) {
			r.whole = append(r.whole, behindError{name, namespaces})
		}
		return
	}
	for _, ns := range namespaces {
		if _, taken := r.owner[ns]; !taken {
			r.owner[ns] = name
		}
	}
}

// overlapError returns a *behindError when one of the namespaces is reserved.
func (r *namespaceReservations) overlapError(namespaces []string) error {
	for i := range r.whole {
		if shared := ledger.Overlap(r.whole[i].namespaces, namespaces); len(shared) > 0 {
			return &behindError{r.whole[i].name, shared}
		}
	}
	if ledger.IsAll(namespaces) {
		for i := range r.list {
			if shared := ledger.Overlap(r.list[i].namespaces, namespaces); len(shared) > 0 {
				return &behindError{r.list[i].name, shared}
			}
		}
		return nil
	}
	for i, ns := range namespaces {
		if name, taken := r.owner[ns]; taken {
			return &behindError{name, r.sharedWith(name, namespaces[i:])}
		}
	}
	return nil
}

// sharedWith returns those of the namespaces that belong to name.
func (r *namespaceReservations) sharedWith(name string, namespaces []string) []string {
	var out []string
	for _, ns := range namespaces {
		if r.owner[ns] == name {
			out = append(out, ns)
		}
	}
	return out
}
