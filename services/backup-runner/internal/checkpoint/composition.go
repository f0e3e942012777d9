package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// compositionVersion is the format version of compositions; others are not understood.
const compositionVersion = 1

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
	if err := createComposition(ctx, store, &c); !errors.Is(err, objectstore.ErrExists) {
		return c, err
	}
	return ReadComposition(ctx, store, c.Backup, c.UID)
}

// createComposition creates one that decode takes.
func createComposition(ctx context.Context, store objectstore.Writer, c *Composition) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode composition of backup %s: %w", c.Backup, err)
	}
	if err := operation.Decodable(bytes.NewReader(text), new(Composition).decodeMember); err != nil {
		return fmt.Errorf("write composition of backup %s: %w: %w", c.Backup, ErrTooLarge, err)
	}
	if err := objectstore.CreateBytes(ctx, store, layout.Composition(c.Backup, c.UID), text); err != nil {
		return fmt.Errorf("write composition of backup %s: %w", c.Backup, err)
	}
	return nil
}

// ReadComposition returns the composition of a backup; the error wraps objectstore.ErrNotFound while
// there is none, ErrDamaged if it is not understood.
func ReadComposition(ctx context.Context, store objectstore.Reader, backup, uid string) (Composition, error) {
	body, err := store.Get(ctx, layout.Composition(backup, uid))
	if err != nil {
		return Composition{}, fmt.Errorf("read composition of backup %s: %w", backup, err)
	}
	from, c := &objectstore.ErrorReader{Reader: body}, Composition{}
	c.Operations, err = operation.Decode(from, c.decodeMember)
	switch {
	case from.Err != nil:
		err = fmt.Errorf("read composition of backup %s: %w", backup, from.Err) // no damage
	case err == nil:
		err = c.checkBackup(backup, uid)
	}
	if err != nil && from.Err == nil {
		err = fmt.Errorf("composition of backup %s: %w: %w", backup, ErrDamaged, err)
	}
	if err = errors.Join(err, body.Close()); err != nil {
		return Composition{}, err
	}
	return c, nil
}

// decodeMember decodes what there is besides the operations.
func (c *Composition) decodeMember(key string, value json.RawMessage) error {
	return operation.DecodeMember(key, value, c)
}

func (c *Composition) checkBackup(backup, uid string) error {
	if c.FormatVersion != compositionVersion {
		return unsupportedFormatError(c.FormatVersion)
	}
	return checkBelongs(backup, uid, c.Backup, c.UID)
}
