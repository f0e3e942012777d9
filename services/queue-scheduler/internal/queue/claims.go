package queue

import (
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// claims is the growing set of namespaces that belong to jobs waiting further
// ahead, with the job each belongs to.
type claims struct {
	owner map[string]string
	all   string // who waits for every namespace
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

// claimedBy begins with the restores that wait: they go before every backup.
func (s *Scheduler) claimedBy(v *view) *claims {
	c := &claims{owner: map[string]string{}}
	for _, r := range v.pending {
		c.add("restore "+r.Name, validate.Targets(&r.Spec))
	}
	return c
}

func (c *claims) add(name string, namespaces []string) {
	for _, ns := range namespaces {
		if ns == ledger.All && c.all == "" {
			c.all = name
		}
		if _, taken := c.owner[ns]; !taken {
			c.owner[ns] = name
		}
	}
}

// overlap returns a *behindError when one of the namespaces is claimed.
func (c *claims) overlap(namespaces []string) error {
	if c.all != "" {
		return &behindError{c.all, namespaces}
	}
	if slices.Contains(namespaces, ledger.All) && len(c.owner) > 0 {
		names := slices.Sorted(maps.Keys(c.owner))
		return &behindError{c.owner[names[0]], names}
	}
	for _, ns := range namespaces {
		if name, taken := c.owner[ns]; taken {
			return &behindError{name, []string{ns}}
		}
	}
	return nil
}
