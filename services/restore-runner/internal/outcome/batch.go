package outcome

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
)

// maxWaiting bounds the lines that wait for a slow or absent bucket, in bytes; Room waits beyond
// it.
const maxWaiting = 4 << 20

// batch gathers lines until they are stored. The Recorder's lock guards it, except packed.
type batch struct {
	size    int // lines after which Wanted is told
	plain   bytes.Buffer
	open    bool          // lines may be stored
	waiting int           // lines in plain
	added   int64         // lines ever
	durable int64         // of these, stored
	changed chan struct{} // closed when durable grows
	wanted  chan struct{}
	err     error

	// packed is a file that is being stored: an attempt whose answer was lost is repeated with the
	// same bytes.
	packed   []byte
	packedTo int64
}

func newBatch(size int) batch {
	return batch{size: size, changed: make(chan struct{}), wanted: make(chan struct{}, 1)}
}

func (b *batch) add(rec *Record) {
	if err := json.NewEncoder(&b.plain).Encode(rec); err != nil {
		b.err = errors.Join(b.err, err)
	}
	b.added++
	if b.waiting++; b.waiting >= b.size || b.plain.Len() > maxWaiting/2 {
		b.want()
	}
}

func (b *batch) want() {
	select {
	case b.wanted <- struct{}{}:
	default:
	}
}

// Store writes one file of records.
type Store interface {
	// Add makes a file durable. After an error it may be called again, with the same data.
	Add(ctx context.Context, data []byte) error
}

// Open says that what is recorded may be stored from now on. Before that everything would be done
// again by a taker, and is kept back.
func (r *Recorder) Open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batch.open = true
}

// Wanted delivers when it is time to call Flush, besides the regular calls.
func (r *Recorder) Wanted() <-chan struct{} { return r.batch.wanted }

// Flush stores the records gathered since the last call. Records that could not be stored are kept
// for the next call.
func (r *Recorder) Flush(ctx context.Context, store Store) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	for {
		more, err := r.takePlain()
		if err != nil || r.batch.packed == nil {
			return err
		}
		failpoint.Hit("restore-runner/before-flush")
		if err := store.Add(ctx, r.batch.packed); err != nil {
			return fmt.Errorf("store record: %w", err)
		}
		failpoint.Hit("restore-runner/after-flush")
		r.stored()
		if !more {
			return nil
		}
	}
}

// takePlain packs what waits, unless a file is left from the last call; more reports that lines
// wait behind that one.
func (r *Recorder) takePlain() (more bool, err error) {
	r.mu.Lock()
	b := &r.batch
	if b.err != nil || !b.open || b.plain.Len() == 0 || b.packed != nil {
		defer r.mu.Unlock()
		return b.packed != nil && b.plain.Len() > 0, b.err
	}
	plain := bytes.Clone(b.plain.Bytes())
	to := b.added
	b.plain.Reset()
	b.waiting = 0
	r.mu.Unlock()
	b.packed, err = pack(plain)
	b.packedTo = to
	return false, err
}

func (r *Recorder) stored() {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &r.batch
	b.durable, b.packed = b.packedTo, nil
	close(b.changed)
	b.changed = make(chan struct{})
}

// Sync waits until everything committed before the call is durable, or ctx ends.
func (r *Recorder) Sync(ctx context.Context) error {
	r.mu.Lock()
	upTo := r.batch.added
	r.mu.Unlock()
	return r.await(ctx, func(b *batch) bool { return b.durable >= upTo })
}

// Room waits while too much is not stored yet, or until ctx ends.
func (r *Recorder) Room(ctx context.Context) error {
	return r.await(ctx, func(b *batch) bool { return b.plain.Len() <= maxWaiting })
}

func (r *Recorder) await(ctx context.Context, met func(*batch) bool) error {
	for {
		r.mu.Lock()
		ok, changed := met(&r.batch), r.batch.changed
		if !ok {
			r.batch.want()
		}
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Journal stores records in the bucket, fenced by the epoch of the claim.
type Journal struct{ *journal.Journal }

// Add implements Store.
func (j Journal) Add(ctx context.Context, data []byte) error {
	_, err := j.Append(ctx, data)
	return err
}

// Dir stores records as files, for locations that are read-only. No runner goes on from them; they
// are for people.
type Dir struct {
	Path string
	next int64
}

// Add implements Store.
func (d *Dir) Add(_ context.Context, data []byte) error {
	name := filepath.Join(d.Path, fmt.Sprintf("record-%010d.json.gz", d.next+1))
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	d.next++
	return nil
}
