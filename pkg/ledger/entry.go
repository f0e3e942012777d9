package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// All as the only namespace of an entry overlaps every other entry, even one
// without namespaces.
const All = "*"

// Entry is an admitted job and the namespaces it was admitted for.
type Entry struct {
	UID        types.UID `json:"uid"`
	Kind       string    `json:"kind"` // KindBackup or KindRestore
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	Namespaces []string  `json:"namespaces"` // sorted; [All] means every namespace
	Since      time.Time `json:"since"`
	// IgnoreBackups lets a restore be admitted beside backups it overlaps with. No
	// backup is ever admitted beside it.
	IgnoreBackups bool `json:"ignoreBackups,omitempty"`
	// Beside names the backups such a restore was admitted beside, sorted. Admit
	// sets it.
	Beside []string `json:"beside,omitempty"`
}

// Blocks returns the namespaces for which e, once admitted, is in the way of
// another job; none means that the two may run at once.
func (e *Entry) Blocks(o *Entry) []string {
	if o.IgnoreBackups && e.Kind == KindBackup {
		return nil
	}
	return Overlap(e.Namespaces, o.Namespaces)
}

// normalize sorts the namespaces and checks the fields.
func (e *Entry) normalize() error {
	switch {
	case e.UID == "":
		return fmt.Errorf("%w: uid is empty", ErrInvalidEntry)
	case e.Kind != KindBackup && e.Kind != KindRestore:
		return fmt.Errorf("%w: kind is %q", ErrInvalidEntry, e.Kind)
	case e.Name == "":
		return fmt.Errorf("%w: name is empty", ErrInvalidEntry)
	case e.IgnoreBackups && e.Kind != KindRestore:
		return fmt.Errorf("%w: ignoreBackups is set on a %s", ErrInvalidEntry, e.Kind)
	}
	if slices.Contains(e.Namespaces, All) {
		e.Namespaces = []string{All}
		return nil
	}
	e.Namespaces = slices.Compact(slices.Sorted(slices.Values(e.Namespaces)))
	return nil
}

// Overlap returns what two sorted lists of namespaces share. All shares
// everything with anything: the result is then the other list, or [All].
func Overlap(a, b []string) []string {
	switch {
	case slices.Equal(a, []string{All}):
		return orAll(b)
	case slices.Equal(b, []string{All}):
		return orAll(a)
	}
	var shared []string
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0], b[0]); {
		case c < 0:
			a = a[1:]
		case c > 0:
			b = b[1:]
		default:
			shared = append(shared, a[0])
			a, b = a[1:], b[1:]
		}
	}
	return shared
}

func orAll(namespaces []string) []string {
	if len(namespaces) == 0 {
		return []string{All}
	}
	return namespaces
}
