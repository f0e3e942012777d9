package ledger

import (
	"fmt"
	"strings"
)

// shown is how many names an error message lists before it only counts.
const shown = 5

// FullError is returned when the limit of a kind is reached.
type FullError struct {
	Kind    string
	Limit   int
	Running []Entry // the admitted jobs of that kind
	// Space is set if the reason is not the limit: the list has no space for another entry of that
	// size.
	Space bool
}

// Error implements error.
func (e *FullError) Error() string {
	names := make([]string, len(e.Running))
	for i, r := range e.Running {
		names[i] = r.Name
	}
	if e.Space {
		return fmt.Sprintf("the ledger has no room for as many namespaces beside those of %d running %ss", len(e.Running), strings.ToLower(e.Kind))
	}
	return fmt.Sprintf("all %d places for %ss are taken, by %s", e.Limit, strings.ToLower(e.Kind), JoinNames(names))
}

// OverlapError is the admitted job that overlaps, and the namespaces.
type OverlapError struct {
	With       Entry
	Namespaces []string
}

// Error implements error.
func (e *OverlapError) Error() string {
	return fmt.Sprintf("%s %s is running on namespaces %s", strings.ToLower(e.With.Kind), e.With.Name, JoinNames(e.Namespaces))
}

// JoinNames lists names for a message, but not very many.
func JoinNames(names []string) string {
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
