package outcome

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Record is one line of a record file: the outcome of an object, or a message about it or about the restore.
type Record struct {
	Kind      string `json:"kind,omitempty"` // "apps/v1/Deployment"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Action    string `json:"action,omitempty"`
	Warning   string `json:"warning,omitempty"`
	Error     string `json:"error,omitempty"`
}

func (r *Recorder) record(node int32, rec Record) Record {
	if node != General {
		gvk := r.plan.Kind(node).GVK
		rec.Kind = apiVersionKind(gvk.GroupVersion().String(), gvk.Kind)
		rec.Namespace, rec.Name = r.plan.Target(node), r.plan.Node(node).Name
	}
	return rec
}

// batch gathers records until they are stored.
type batch struct {
	plain bytes.Buffer
	err   error
}

func (b *batch) add(rec Record) {
	if err := json.NewEncoder(&b.plain).Encode(rec); err != nil {
		b.err = errors.Join(b.err, err)
	}
}

// Store writes one file of records that exists under no name yet.
type Store interface {
	// Add stores the records of a batch, gzip-compressed JSON lines.
	Add(ctx context.Context, data []byte) error
}

// Flush stores the records gathered since the last call. Records that could not be stored are kept for the next call.
func (r *Recorder) Flush(ctx context.Context, store Store) error {
	r.mu.Lock()
	plain := append([]byte(nil), r.records.plain.Bytes()...)
	err := r.records.err
	r.mu.Unlock()
	if err != nil || len(plain) == 0 {
		return err
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(plain); err != nil {
		return fmt.Errorf("compress records: %w", err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("compress records: %w", err)
	}
	if err := store.Add(ctx, packed.Bytes()); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records.plain.Next(len(plain))
	return nil
}

// Bucket stores records as restores/<restore>/records/<uid>/<epoch>-<sequence>.json.gz. One goroutine uses it at a time.
type Bucket struct {
	Writer  objectstore.Writer
	Restore string
	UID     string
	Epoch   int64
	next    int64
}

// Add implements Store. A record of that name means that an earlier attempt to write it had succeeded.
func (b *Bucket) Add(ctx context.Context, data []byte) error {
	name := fmt.Sprintf("%s%s/%010d-%010d.json.gz", layout.RestoreRecordsPrefix(b.Restore), b.UID, b.Epoch, b.next+1)
	err := objectstore.CreateBytes(ctx, b.Writer, name, data)
	if errors.Is(err, objectstore.ErrExists) {
		b.next++
		return b.Add(ctx, data)
	}
	if err != nil {
		return fmt.Errorf("store record: %w", err)
	}
	b.next++
	return nil
}

// Dir stores records as files, for locations that are read-only.
type Dir struct {
	Path string
	next int64
}

// Add implements Store.
func (d *Dir) Add(_ context.Context, data []byte) error {
	name := filepath.Join(d.Path, fmt.Sprintf("record-%010d.json.gz", d.next+1))
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return fmt.Errorf("store record: %w", err)
	}
	d.next++
	return nil
}
