package itemaction

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// flushEvery is how long what was done may be known to this process alone.
	flushEvery = time.Second
	// batchPairs is how many pairs one object of the record holds at most, and maxBatch how large
	// one is read.
	batchPairs = 4096
	maxBatch   = 16 << 20
)

// doneRecord holds which actions have done their work for which items, as objects of the bucket beside
// the backup, each written once. Methods are for one goroutine, but for flush.
type doneRecord struct {
	job    Job
	log    *slog.Logger
	prefix string
	known  map[pairID]struct{} // of earlier attempts, and of this one if remembers
	// remembers adds what this attempt did to known.
	remembers bool

	mu      sync.Mutex
	pending []donePair

	writing sync.Mutex // held for the fields below
	batch   []byte     // a part of what was pending, which is being written
	written int
}

// donePair is an action and the path of an item it has done its work for.
type donePair struct{ action, path string }

// pairID is the hash of a pair: a million take 30 MiB or so.
type pairID [16]byte

func (p donePair) hashID() (short pairID) {
	sum := sha256.Sum256([]byte(p.action + "\x00" + p.path))
	copy(short[:], sum[:])
	return short
}

// recordFile is one object of the record.
type recordFile struct {
	Version int `json:"version"`
	// Done has the paths of items by action.
	Done map[string][]string `json:"done"`
}

const recordVersion = 1

func newRecord(job Job, log *slog.Logger) *doneRecord {
	return &doneRecord{job: job, log: log, prefix: layout.DeletionRecords(job.Backup.Name, job.UID)}
}

// loadDone reads what was recorded so far. A damaged object is reported and left out: its items come
// again.
func (r *doneRecord) loadDone(ctx context.Context) error {
	r.known = map[pairID]struct{}{}
	return r.job.Store.List(ctx, r.prefix, func(i objectstore.Info) error {
		data, err := objectstore.ReadAll(ctx, r.job.Store, i.Key, maxBatch)
		if err == nil {
			err = r.learnPairs(data)
		}
		if errors.Is(err, errRecord) || errors.Is(err, objectstore.ErrSize) {
			r.log.Warn("record of delete item actions cannot be read, what it holds is done again", "key", i.Key, "error", err)
			return nil
		}
		return err
	})
}

var errRecord = errors.New("damaged record")

func (r *doneRecord) learnPairs(data []byte) error {
	var f recordFile
	if err := jsonlimit.Unmarshal(data, &f, jsonlimit.Object); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	if f.Version != recordVersion {
		return fmt.Errorf("%w: version: %d, want %d", errRecord, f.Version, recordVersion)
	}
	for action, paths := range f.Done {
		for _, path := range paths {
			r.known[donePair{action, path}.hashID()] = struct{}{}
		}
	}
	return nil
}

// hasDone reports whether the action had done its work for the item when the record was loaded, or
// since if remembers is set.
func (r *doneRecord) hasDone(action, path string) bool {
	if len(r.known) == 0 {
		return false
	}
	_, ok := r.known[donePair{action, path}.hashID()]
	return ok
}

// addDone notes that the action has done its work for the item. It is written soon.
func (r *doneRecord) addDone(ctx context.Context, action, path string) {
	if r.remembers {
		r.known[donePair{action, path}.hashID()] = struct{}{}
	}
	r.mu.Lock()
	r.pending = append(r.pending, donePair{action, path})
	full := len(r.pending)%batchPairs == 0
	r.mu.Unlock()
	if full {
		r.tryFlush(ctx)
	}
}

// keepWriting writes what is pending from time to time, until stop is called: an action that takes long
// must not hold up the record of others.
func (r *doneRecord) keepWriting(ctx context.Context, c clock.WithTicker) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ticker := c.NewTicker(flushEvery)
	var group panics.Group
	group.Go(func() error {
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
				r.tryFlush(ctx)
			}
		}
	})
	return func() {
		cancel()
		_ = group.Wait() // it returns no error; a panic is carried on
	}
}

func (r *doneRecord) tryFlush(ctx context.Context) {
	if err := r.flushPending(ctx); err != nil && ctx.Err() == nil {
		r.log.Warn("what delete item actions have done is not recorded yet", "error", err)
	}
}

// flushPending writes everything that is pending. What it cannot write stays pending. It is safe for
// concurrent use.
func (r *doneRecord) flushPending(ctx context.Context) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	for {
		if r.batch == nil {
			var err error
			if r.batch, err = r.encodeNext(); r.batch == nil || err != nil {
				return err
			}
		}
		if err := r.job.Confirm(ctx); err != nil {
			return err
		}
		key := fmt.Sprintf("%s%s-%06d.json", r.prefix, r.job.Attempt, r.written)
		err := objectstore.CreateBytes(ctx, r.job.Store, key, r.batch)
		// One that exists is this batch: its first creation succeeded although it returned an error.
		if err != nil && !errors.Is(err, objectstore.ErrExists) {
			return err
		}
		failpoint.Hit("deletion/action-recorded")
		r.batch = nil
		r.written++
	}
}

// encodeNext encodes the next of the pending pairs; nil when there are none.
func (r *doneRecord) encodeNext() ([]byte, error) {
	r.mu.Lock()
	n := min(len(r.pending), batchPairs)
	pairs := r.pending[:n:n]
	if r.pending = r.pending[n:]; len(r.pending) == 0 {
		r.pending = nil
	}
	r.mu.Unlock()
	if n == 0 {
		return nil, nil
	}
	f := recordFile{Version: recordVersion, Done: map[string][]string{}}
	for _, p := range pairs {
		f.Done[p.action] = append(f.Done[p.action], p.path)
	}
	return json.Marshal(f)
}
