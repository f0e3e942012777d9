package queue

import (
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// claims is the growing set of namespaces that belong to jobs waiting further ahead, with the job
// each belongs to.
type claims struct {
	owner map[string]string
	list  []behindError // every claim, in order
	whole []behindError // of every namespace, but perhaps for some; each set once
}

// newClaims has room for about so many namespaces.
func newClaims(room int) *claims {
	return &claims{owner: make(map[string]string, room), list: make([]behindError, 0, room/2)}
}

// behindError says that a job waits further ahead for the same namespaces.
type behindError struct {
	name       string
	namespaces []string
}

// Error implements error.
func (e *behindError) Error() string {
	return fmt.Sprintf("%s is ahead in the queue and waits for namespaces %v too", e.name, e.namespaces)
}

// add claims every namespace of a job that waits.
func (c *claims) add(name string, namespaces []string) {
	if len(namespaces) > 0 {
		c.list = append(c.list, behindError{name, namespaces})
	}
	if ledger.IsAll(namespaces) {
		known := func(o behindError) bool { return slices.Equal(o.namespaces, namespaces) }
		if !slices.ContainsFunc(c.whole, known) {
			c.whole = append(c.whole, behindError{name, namespaces})
		}
		return
	}
	for _, ns := range namespaces {
		if _, taken := c.owner[ns]; !taken {
			c.owner[ns] = name
		}
	}
}

// overlap returns a *behindError when one of the namespaces is claimed.
func (c *claims) overlap(namespaces []string) error {
	for i := range c.whole {
		if shared := ledger.Overlap(c.whole[i].namespaces, namespaces); len(shared) > 0 {
			return &behindError{c.whole[i].name, shared}
		}
	}
	if ledger.IsAll(namespaces) {
		for i := range c.list {
			if shared := ledger.Overlap(c.list[i].namespaces, namespaces); len(shared) > 0 {
				return &behindError{c.list[i].name, shared}
			}
		}
		return nil
	}
	for i, ns := range namespaces {
		if name, taken := c.owner[ns]; taken {
			return &behindError{name, c.shared(name, namespaces[i:])}
		}
	}
	return nil
}

// shared returns those of the namespaces that belong to name.
func (c *claims) shared(name string, namespaces []string) []string {
	var out []string
	for _, ns := range namespaces {
		if c.owner[ns] == name {
			out = append(out, ns)
		}
	}
	return out
}
