package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// ErrFenced means that another holder wrote the next record of this epoch.
var ErrFenced = errors.New("the epoch was closed by another holder")

// Writer appends the records of one epoch. Safe for concurrent use.
type Writer struct {
	store  objectstore.Store
	backup string
	uid    string
	epoch  int64

	mu  sync.Mutex
	seq int64
}

// NewWriter returns the writer of a new epoch; there must be only one.
func NewWriter(store objectstore.Store, backup, uid string, epoch int64) *Writer {
	return &Writer{store: store, backup: backup, uid: uid, epoch: epoch}
}

// Append makes rec durable as the next record and returns its key. The part it
// names must be durable already. After an error other than ErrFenced the number
// stays free and Append may be called again.
func (w *Writer) Append(ctx context.Context, rec Record) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rec.FormatVersion, rec.Backup, rec.UID = formatVersion, w.backup, w.uid
	rec.Epoch, rec.Seq = w.epoch, w.seq+1
	data, err := json.Marshal(rec)
	if err != nil {
		return "", fmt.Errorf("encode checkpoint: %w", err)
	}
	key := layout.Checkpoint(w.backup, w.uid, w.epoch, rec.Seq)
	err = w.store.Create(ctx, key, bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, objectstore.ErrExists) {
		err = w.mine(ctx, key, data)
	}
	if err != nil {
		return "", fmt.Errorf("write checkpoint %d of epoch %d: %w", rec.Seq, w.epoch, err)
	}
	w.seq = rec.Seq
	return key, nil
}

// mine accepts a record that an earlier call, whose answer was lost, has written.
func (w *Writer) mine(ctx context.Context, key string, data []byte) error {
	stored, err := readAll(ctx, w.store, key)
	if err != nil {
		return err
	}
	if !bytes.Equal(stored, data) {
		return ErrFenced
	}
	return nil
}

// Read returns the record under a key.
func Read(ctx context.Context, store objectstore.Reader, key string) (Record, error) {
	var rec Record
	data, err := readAll(ctx, store, key)
	if err != nil {
		return rec, fmt.Errorf("read checkpoint: %w", err)
	}
	if err := decode(data, &rec, &rec.FormatVersion); err != nil {
		return rec, fmt.Errorf("checkpoint %s: %w", key, err)
	}
	return rec, nil
}

// maxRecordBytes bounds what is read of a record: it covers one part.
const maxRecordBytes = 64 << 20

func readAll(ctx context.Context, store objectstore.Reader, key string) ([]byte, error) {
	body, err := store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxRecordBytes+1))
	if err == nil && len(data) > maxRecordBytes {
		err = fmt.Errorf("%s is larger than %d bytes", key, maxRecordBytes)
	}
	return data, err
}
