package ledger

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// MaxNamespaces bounds the namespaces of an entry, as the sum of Size: a few entries must fit into
// the list together.
const MaxNamespaces = 256 << 10

// Size is what a list of namespaces takes of MaxNamespaces, in bytes.
func Size(namespaces []string) int {
	const quotes = 3 // and a comma
	size := 0
	for _, ns := range namespaces {
		size += len(ns) + quotes
	}
	return size
}

// Entry is an admitted job and the namespaces it was admitted for.
type Entry struct {
	UID        types.UID `json:"uid"`
	Kind       string    `json:"kind"` // KindBackup or KindRestore
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	Namespaces []string  `json:"namespaces"` // sorted; with All those it leaves out, and All
	Since      time.Time `json:"since"`
	// IgnoreBackups lets a restore be admitted beside backups it overlaps with. No backup is ever
	// admitted beside it.
	IgnoreBackups bool `json:"ignoreBackups,omitempty"`
	// Idle is set on a restore that has nothing left to create: it takes no place, and blocks restores
	// only. SetIdle sets it.
	Idle bool `json:"idle,omitempty"`
	// Beside names the backups such a restore was admitted beside, sorted. Admit sets it.
	Beside []string `json:"beside,omitempty"`
}

// Blocks returns the namespaces for which e, once admitted, is in the way of another job; none
// means that the two may run at once.
func (e *Entry) Blocks(o *Entry) []string {
	if o.IgnoreBackups && e.Kind == KindBackup || e.Idle && o.Kind != KindRestore {
		return nil
	}
	return Overlap(e.Namespaces, o.Namespaces)
}

// normalizeFields sorts the namespaces and checks the fields.
func (e *Entry) normalizeFields() error {
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
	e.Namespaces = sortSpaces(e.Namespaces)
	if size := Size(e.Namespaces); size > MaxNamespaces {
		return fmt.Errorf("%w: namespaces: %d names take %d bytes, at most %d do fit", ErrInvalidEntry, len(e.Namespaces), size, MaxNamespaces)
	}
	return nil
}
