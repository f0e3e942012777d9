package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// MaxInputBytes bounds an Input: two objects as large as the API server stores by default (1.5 MiB)
	// fit. With the largest job, of 3 MiB, it is the largest message that a runner takes, see
	// operationhome.MaxMessage.
	MaxInputBytes = 4 << 20
	// maxInputDecoded bounds what one takes in memory.
	maxInputDecoded = 4 * MaxInputBytes
)

// Input is what an action was called with about an item, so that the call can be made once more.
type Input struct {
	FormatVersion int    `json:"formatVersion"`
	UID           string `json:"uid"` // of the job
	// Item is the item as JSON, as the actions before left it.
	Item json.RawMessage `json:"item"`
	// FromBackup is the item as it was backed up; empty in a backup.
	FromBackup json.RawMessage `json:"fromBackup,omitempty"`
}

var inputs = document.Kind[Input]{Name: "input of an operation", MaxBytes: MaxInputBytes, MaxDecoded: maxInputDecoded}

func inputKey(j Job, key string) string { return j.prefix() + "input-" + key }

// KeepInput keeps what an action was called with under the idempotency key of the call. What was
// kept before stands. The error wraps document.ErrTooLarge where no reader would take it.
func KeepInput(ctx context.Context, store objectstore.Store, job Job, key string, in Input) error {
	in.FormatVersion, in.UID = formatVersion, job.UID
	_, err := inputs.Create(ctx, store, inputKey(job, key), in, job.checkInput)
	return err
}

// ReadInput returns what KeepInput kept. The error wraps objectstore.ErrNotFound where it kept
// nothing, ErrDamaged where that is not understood.
func ReadInput(ctx context.Context, store objectstore.Reader, job Job, key string) (Input, error) {
	return inputs.Read(ctx, store, inputKey(job, key), job.checkInput)
}

// inputBytes returns how long what KeepInput kept is; MaxInputBytes where the store does not tell. The
// error wraps objectstore.ErrNotFound where it kept nothing.
func inputBytes(ctx context.Context, store objectstore.Reader, job Job, key string) (int64, error) {
	info, err := store.Stat(ctx, inputKey(job, key))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", inputs.Name, err)
	case info.Size <= 0 || info.Size > MaxInputBytes: // ReadInput reads no more
		return MaxInputBytes, nil
	}
	return info.Size, nil
}

func (j Job) checkInput(in *Input) error {
	switch {
	case in.FormatVersion != formatVersion:
		return fmt.Errorf("formatVersion: %d is not supported", in.FormatVersion)
	case in.UID != j.UID:
		return fmt.Errorf("uid: %q is not that of %s", in.UID, j)
	case len(in.Item) == 0:
		return errors.New("item: is missing")
	}
	return nil
}
