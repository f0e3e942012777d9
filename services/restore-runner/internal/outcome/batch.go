package outcome

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
)

// maxWaiting bounds the lines that wait for a slow or absent bucket, in bytes; Room waits beyond
// it.
const maxWaiting = 4 << 20

// batch gathers lines until they are stored. Safe for concurrent use.
type batch struct {
	size   int // lines after which wanted delivers
	wanted chan struct{}

	mu      sync.Mutex
	plain   bytes.Buffer
	open    bool          // lines may be stored
	waiting int           // lines in plain
	added   int64         // lines ever
	durable int64         // of these, stored
	changed chan struct{} // closed when durable grows
	err     error

	flushing sync.Mutex // held while a file of records is stored
	// packed is a file that is being stored: an attempt whose answer was lost is repeated with the
	// same bytes.
	packed   []byte
	packedTo int64
}

func newBatch(size int) *batch {
	return &batch{size: size, changed: make(chan struct{}), wanted: make(chan struct{}, 1)}
}

func (b *batch) add(rec *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := json.NewEncoder(&b.plain).Encode(rec); err != nil {
		b.err = errors.Join(b.err, err)
	}
	b.added++
	if b.waiting++; b.waiting >= b.size || b.plain.Len() > maxWaiting/2 {
		b.want()
	}
}

// fail ends the restore at the next flush.
func (b *batch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = errors.Join(b.err, err)
}

// want makes wanted deliver.
func (b *batch) want() {
	select {
	case b.wanted <- struct{}{}:
	default:
	}
}

// begin lets lines be stored.
func (b *batch) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = true
}

func (b *batch) flush(ctx context.Context, store Store) error {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	for {
		more, err := b.pack()
		if err != nil || b.packed == nil {
			return err
		}
		failpoint.Hit("restore-runner/before-flush")
		if err := store.Add(ctx, b.packed); err != nil {
			return fmt.Errorf("store record: %w", err)
		}
		failpoint.Hit("restore-runner/after-flush")
		b.stored()
		if !more {
			return nil
		}
	}
}

// pack packs what waits, unless a file is left from the last call; more reports that lines wait
// behind that one.
func (b *batch) pack() (more bool, err error) {
	b.mu.Lock()
	if b.err != nil || !b.open || b.plain.Len() == 0 || b.packed != nil {
		defer b.mu.Unlock()
		return b.packed != nil && b.plain.Len() > 0, b.err
	}
	plain := bytes.Clone(b.plain.Bytes())
	to := b.added
	b.plain.Reset()
	b.waiting = 0
	b.mu.Unlock()
	b.packed, err = pack(plain)
	b.packedTo = to
	return false, err
}

func (b *batch) stored() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.durable, b.packed = b.packedTo, nil
	close(b.changed)
	b.changed = make(chan struct{})
}

// sync waits until every line that was added before the call is stored.
func (b *batch) sync(ctx context.Context) error {
	b.mu.Lock()
	upTo := b.added
	b.mu.Unlock()
	return b.await(ctx, func() bool { return b.durable >= upTo })
}

// room waits while too much is not stored yet.
func (b *batch) room(ctx context.Context) error {
	return b.await(ctx, func() bool { return b.plain.Len() <= maxWaiting })
}

// await waits until met, which it calls under the lock, or until ctx ends.
func (b *batch) await(ctx context.Context, met func() bool) error {
	for {
		b.mu.Lock()
		ok, changed := met(), b.changed
		if !ok {
			b.want()
		}
		b.mu.Unlock()
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
