package checkpoint

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Formats of compositions; others are not understood. A runner that does not wait for operations
// does not understand a composition with some.
const (
	compositionVersion        = 1
	compositionWithOperations = 2
)

// maxCompositionBytes is far above what the keys of all records take.
const maxCompositionBytes = 64 << 20

// Composition fixes what a backup consists of, before anything is published: the order of its parts
// and its phase, or that it failed. There is one per backup; every later holder follows it.
type Composition struct {
	FormatVersion int    `json:"formatVersion"`
	Backup        string `json:"backup"`
	UID           string `json:"uid"`
	Epoch         int64  `json:"epoch"`
	// Checkpoints are the keys of the records, in the order of their parts in the tarball.
	Checkpoints []string `json:"checkpoints"`
	// Phase is the terminal phase.
	Phase velerov1.BackupPhase `json:"phase"`
	// Items, Warnings and Errors are the sums over the parts.
	Items    int `json:"items"`
	Warnings int `json:"warnings"`
	Errors   int `json:"errors"`
	// Revisions are the common revisions of the cut, oldest first.
	Revisions []string `json:"revisions,omitempty"`
	// Operations are those that actions began and that the backup waits for.
	Operations []operation.Operation `json:"operations,omitempty"`
	// Namespaces are those the backup was admitted for, where it has operations: its ledger entry is
	// gone when they have ended.
	Namespaces []string `json:"namespaces,omitempty"`
	// Failure is set when the backup failed before it was collected: the phase is Failed, and there
	// are no parts to publish.
	Failure *Failure `json:"failure,omitempty"`
}

// RecordComposition makes c the composition, or returns the one that was recorded before. The error
// wraps ErrTooLarge where no reader would take it.
func RecordComposition(ctx context.Context, store objectstore.Store, c Composition) (Composition, error) {
	c.FormatVersion = compositionVersion
	if len(c.Operations) > 0 {
		c.FormatVersion = compositionWithOperations
	}
	kind, check := compositionOf(c.Backup, c.UID)
	return kind.Create(ctx, store, layout.Composition(c.Backup, c.UID), c, check)
}

// ReadComposition returns the composition of a backup; the error wraps objectstore.ErrNotFound while
// there is none, ErrDamaged if it is not understood.
func ReadComposition(ctx context.Context, store objectstore.Reader, backup, uid string) (Composition, error) {
	kind, check := compositionOf(backup, uid)
	return kind.Read(ctx, store, layout.Composition(backup, uid), check)
}

func compositionOf(backup, uid string) (document.Kind[Composition], func(*Composition) error) {
	kind := document.Kind[Composition]{Name: "composition of backup " + backup, MaxBytes: maxCompositionBytes, MaxDecoded: maxDecoded}
	return kind, func(c *Composition) error {
		if c.FormatVersion < compositionVersion || c.FormatVersion > compositionWithOperations {
			return unsupported(c.FormatVersion)
		}
		return belongs(backup, uid, c.Backup, c.UID)
	}
}
