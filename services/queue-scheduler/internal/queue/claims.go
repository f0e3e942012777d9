package queue

import (
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/ledger"
)

// claims is the growing set of namespaces that belong to jobs waiting further
// ahead, with the job each belongs to.
type claims struct {
	owner map[string]string
	first *behindError // the first claim of all
	all   string       // who waits for every namespace
	rule  claimRule
}

// claimRule adds what a job that waits claims.
type claimRule func(c *claims, name string, namespaces []string)

// newClaims has room for about so many namespaces.
func newClaims(rule claimRule, room int) *claims {
	return &claims{owner: make(map[string]string, room), rule: rule}
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

func (c *claims) add(name string, namespaces []string) { c.rule(c, name, namespaces) }

// claimAll is the rule: every namespace of a job that waits belongs to it.
func claimAll(c *claims, name string, namespaces []string) {
	if c.first == nil && len(namespaces) > 0 {
		c.first = &behindError{name, namespaces}
	}
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
	if c.first != nil && slices.Contains(namespaces, ledger.All) {
		return c.first
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
