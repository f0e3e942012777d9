package history

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

const (
	// maxOutcomeBytes bounds the answers in one record.
	maxOutcomeBytes = 16 << 20
	// leastItem is the least that an item takes in the text of a record.
	leastItem = len(`{"resource":"","name":""},`)
)

func itemBytes(items []operation.Resource) (n int) {
	for i := range items {
		n += leastItem + len(items[i].Group) + len(items[i].Resource) + len(items[i].Namespace) + len(items[i].Name)
	}
	return n
}

// Records makes records durable; checkpoint.Log is one.
type Records interface {
	Append(ctx context.Context, rec checkpoint.Record) (key string, err error)
}

// Log announces calls and snapshots, and carries the outcomes of calls in the records that it
// appends. Safe for concurrent use.
type Log struct {
	records Records

	mu sync.Mutex
	// ended are the outcomes that are in no durable record yet, after gone others.
	ended []checkpoint.Outcome
	gone  int
	// hooks are the outcomes of hooks, after hooksGone others.
	hooks     []checkpoint.HookOutcome
	hooksGone int
	next      *intentBatch
	// begun are the operations that calls of this holder began.
	begun []operation.Operation

	// writing is locked while a record of intents is written; others gather for the next one
	// meanwhile.
	writing sync.Mutex
}

// NewLog returns a log that writes into records.
func NewLog(records Records) *Log { return &Log{records: records} }

// intentBatch go into one record.
type intentBatch struct {
	calls     []checkpoint.Call
	snapshots []nativesnapshot.Snapshot
	hooked    []checkpoint.HookedPod
	hooks     []checkpoint.HookIntent
	done      chan struct{}
	err       error // valid when done
}

// Call makes durable that a call is about to be made. Concurrent announcements share records. After
// an error the record may be there or not.
func (l *Log) Call(ctx context.Context, call *checkpoint.Call) error {
	return l.announceIntents(ctx, func(i *intentBatch) { i.calls = append(i.calls, *call) })
}

// Snapshot makes durable, like Call, that a snapshot is about to be taken.
func (l *Log) Snapshot(ctx context.Context, s *nativesnapshot.Snapshot) error {
	return l.announceIntents(ctx, func(i *intentBatch) { i.snapshots = append(i.snapshots, *s) })
}

// Hook makes durable, like Call, that hooks of a Pod begin, unless opens is nil, and that one of
// them is about to run, unless runs is nil.
func (l *Log) Hook(ctx context.Context, opens *checkpoint.HookedPod, runs *checkpoint.HookIntent) error {
	return l.announceIntents(ctx, func(i *intentBatch) {
		if opens != nil {
			i.hooked = append(i.hooked, *opens)
		}
		if runs != nil {
			i.hooks = append(i.hooks, *runs)
		}
	})
}

// SetResult makes durable how calls and hooks ended, all until now.
func (l *Log) SetResult(ctx context.Context) error {
	if !l.Pending() {
		return nil
	}
	return l.announceIntents(ctx, func(*intentBatch) {})
}

// announceIntents makes intents durable. While one record is written they gather for the next, so that
// those in flight share one.
func (l *Log) announceIntents(ctx context.Context, add func(*intentBatch)) error {
	mine, first := l.gatherIntents(add)
	if first {
		l.writeGathered(ctx)
	}
	<-mine.done
	return mine.err
}

// errNotWritten is the result of a batch whose write panicked.
var errNotWritten = errors.New("the record of intents was not written")

// writeGathered writes the record of the gathered intents. Those that wait for it are released also where the write panics.
func (l *Log) writeGathered(ctx context.Context) {
	l.writing.Lock()
	defer l.writing.Unlock()
	closed := l.closeGathered()
	defer close(closed.done)
	closed.err = errNotWritten
	_, closed.err = l.Append(ctx, checkpoint.Record{Intents: closed.calls, Intended: closed.snapshots, Hooked: closed.hooked, Hooks: closed.hooks})
}

// gatherIntents adds intents to those of the next record, which the first is to write.
func (l *Log) gatherIntents(add func(*intentBatch)) (mine *intentBatch, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.next == nil; first {
		l.next = &intentBatch{done: make(chan struct{})}
	}
	add(l.next)
	return l.next, first
}

// closeGathered returns what gathered.
func (l *Log) closeGathered() *intentBatch {
	l.mu.Lock()
	defer l.mu.Unlock()
	closed := l.next
	l.next = nil
	return closed
}

// Append makes a record durable with the outcomes that are in none yet, and returns its key. Where one
// record does not take all that ended before the call, others come before it. The error is that of
// Records.
func (l *Log) Append(ctx context.Context, rec checkpoint.Record) (key string, err error) {
	for before := l.countEnded(); l.leavesOutcomes(before); {
		if _, err := l.appendRecord(ctx, checkpoint.Record{}); err != nil {
			return "", err
		}
	}
	return l.appendRecord(ctx, rec)
}

// countEnded returns how many calls have ended so far.
func (l *Log) countEnded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone + len(l.ended)
}

// leavesOutcomes reports whether the next record leaves some of the first n outcomes to another one.
func (l *Log) leavesOutcomes(n int) bool {
	_, upTo := l.nextOutcomes()
	return upTo < n
}

func (l *Log) appendRecord(ctx context.Context, rec checkpoint.Record) (key string, err error) {
	var upTo, hooksUpTo int
	rec.Outcomes, upTo = l.nextOutcomes()
	rec.HookOutcomes, hooksUpTo = l.hookOutcomes()
	if key, err = l.records.Append(ctx, rec); err != nil {
		return "", err
	}
	l.noteRecorded(upTo, hooksUpTo)
	return key, nil
}

// EndHook keeps the outcome of a hook for the next record.
func (l *Log) EndHook(out *checkpoint.HookOutcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, *out)
}

// End keeps the outcome of a call for the next record.
func (l *Log) End(out *checkpoint.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, *out)
	if out.Begun != nil {
		l.begun = append(l.begun, *out.Begun)
	}
}

// Begun returns the operations that this holder's calls began.
func (l *Log) Begun() []operation.Operation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.begun)
}

// Pending reports whether there are outcomes in no durable record.
func (l *Log) Pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ended)+len(l.hooks) > 0
}

// nextOutcomes returns what is to be in the next record. Records that are written at the same time may
// have the same ones.
func (l *Log) nextOutcomes() (out []checkpoint.Outcome, upTo int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.ended) && (n == 0 || size+sizeOf(&l.ended[n]) <= maxOutcomeBytes) {
		size += sizeOf(&l.ended[n])
		n++
	}
	return slices.Clone(l.ended[:n]), l.gone + n
}

// hookOutcomes is outcomes of hooks.
func (l *Log) hookOutcomes() (out []checkpoint.HookOutcome, upTo int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.hooks), l.hooksGone + len(l.hooks)
}

// sizeOf is about what the answer of an outcome takes in a record.
func sizeOf(o *checkpoint.Outcome) int {
	n := len(o.Body) + len(o.Patch) + itemBytes(o.Additional)
	if o.Begun != nil {
		n += itemBytes(o.Begun.PostOperation)
	}
	return n
}

// noteRecorded notes that outcomes are durable.
func (l *Log) noteRecorded(upTo, hooksUpTo int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := upTo - l.gone; n > 0 {
		l.ended, l.gone = slices.Delete(l.ended, 0, n), upTo
	}
	if n := hooksUpTo - l.hooksGone; n > 0 {
		l.hooks, l.hooksGone = slices.Delete(l.hooks, 0, n), hooksUpTo
	}
}
