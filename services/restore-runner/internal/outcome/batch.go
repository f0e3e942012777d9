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

// lineBatch gathers lines until they are stored. Safe for concurrent use.
type lineBatch struct {
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

func newBatch(size int) *lineBatch {
	return &lineBatch{size: size, changed: make(chan struct{}), wanted: make(chan struct{}, 1)}
}

func (b *lineBatch) addRecord(rec *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := json.NewEncoder(&b.plain).Encode(rec); err != nil {
		b.err = errors.Join(b.err, err)
	}
	b.added++
	if b.waiting++; b.waiting >= b.size || b.plain.Len() > maxWaiting/2 {
		b.wantFlush()
	}
}

// ErrWorkDir is an error of the work directory: no attempt of this process can record more.
var ErrWorkDir = errors.New("the work directory takes nothing more")

// failRestore ends the restore at the next flush: the work directory does not take a message.
func (b *lineBatch) failRestore(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = errors.Join(b.err, fmt.Errorf("%w: %w", ErrWorkDir, err))
}

// wantFlush makes wanted deliver.
func (b *lineBatch) wantFlush() {
	select {
	case b.wanted <- struct{}{}:
	default:
	}
}

// beginStoring lets lines be stored.
func (b *lineBatch) beginStoring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open = true
}

func (b *lineBatch) flushLines(ctx context.Context, store Store) error {
	b.flushing.Lock()
	defer b.flushing.Unlock()
	for {
		more, err := b.packLines()
		if err != nil || b.packed == nil {
			return err
		}
		failpoint.Hit("restore-runner/before-flush")
		if err := store.Add(ctx, b.packed); err != nil {
			return fmt.Errorf("store record: %w", err)
		}
		failpoint.Hit("restore-runner/after-flush")
		b.noteStored()
		if !more {
			return nil
		}
	}
}

// packLines packs what waits, unless a file is left from the last call; more reports that lines wait
// behind that one.
func (b *lineBatch) packLines() (more bool, err error) {
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
	b.packed, err = packRecords(plain)
	b.packedTo = to
	return false, err
}

func (b *lineBatch) noteStored() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.durable, b.packed = b.packedTo, nil
	close(b.changed)
	b.changed = make(chan struct{})
}

// awaitStored waits until every line that was added before the call is stored.
func (b *lineBatch) awaitStored(ctx context.Context) error {
	b.mu.Lock()
	upTo := b.added
	b.mu.Unlock()
	return b.awaitCondition(ctx, func() bool { return b.durable >= upTo })
}

// awaitRoom waits while too much is not stored yet.
func (b *lineBatch) awaitRoom(ctx context.Context) error {
	return b.awaitCondition(ctx, func() bool { return b.plain.Len() <= maxWaiting })
}

// awaitCondition waits until met, which it calls under the lock, or until ctx ends.
func (b *lineBatch) awaitCondition(ctx context.Context, met func() bool) error {
	for {
		b.mu.Lock()
		ok, changed := met(), b.changed
		if !ok {
			b.wantFlush()
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
