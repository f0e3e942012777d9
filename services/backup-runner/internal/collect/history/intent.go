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

// Log announces calls, snapshots and hooks, and carries the outcomes of calls and hooks in the records
// that it appends. Safe for concurrent use.
type Log struct {
	records Records

	mu sync.Mutex
	// ended are the outcomes that are in no durable record yet, after gone others.
	ended []outcome
	gone  int
	next  *intentBatch
	// begun are the operations that calls of this holder began.
	begun []operation.Operation

	// writing is locked while a record of intents is written; others gather for the next one
	// meanwhile.
	writing sync.Mutex
}

// outcome is that of a call or of a hook.
type outcome struct {
	call *checkpoint.Outcome
	hook *checkpoint.HookOutcome
}

// NewLog returns a log that writes into records.
func NewLog(records Records) *Log { return &Log{records: records} }

// intentBatch are the intents of one record.
type intentBatch struct {
	record checkpoint.Record
	done   chan struct{}
	err    error // valid when done
}

// Call makes durable that a call is about to be made. Concurrent announcements share records. After
// an error the record may be there or not.
func (l *Log) Call(ctx context.Context, call *checkpoint.Call) error {
	return l.announceIntents(ctx, func(r *checkpoint.Record) { r.Intents = append(r.Intents, *call) })
}

// Snapshot makes durable, like Call, that a snapshot is about to be taken.
func (l *Log) Snapshot(ctx context.Context, s *nativesnapshot.Snapshot) error {
	return l.announceIntents(ctx, func(r *checkpoint.Record) { r.Intended = append(r.Intended, *s) })
}

// Hook makes durable, like Call, that hooks of a Pod begin, unless opens is nil, and that one of
// them is about to run, unless runs is nil.
func (l *Log) Hook(ctx context.Context, opens *checkpoint.HookedPod, runs *checkpoint.HookIntent) error {
	return l.announceIntents(ctx, func(r *checkpoint.Record) {
		if opens != nil {
			r.Hooked = append(r.Hooked, *opens)
		}
		if runs != nil {
			r.Hooks = append(r.Hooks, *runs)
		}
	})
}

// FlushOutcomes makes durable how calls and hooks ended, all until now.
func (l *Log) FlushOutcomes(ctx context.Context) error {
	if !l.Pending() {
		return nil
	}
	return l.announceIntents(ctx, func(*checkpoint.Record) {})
}

// announceIntents makes intents durable. While one record is written they gather for the next, so that
// those in flight share one.
func (l *Log) announceIntents(ctx context.Context, add func(*checkpoint.Record)) error {
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
	_, closed.err = l.Append(ctx, closed.record)
}

// gatherIntents adds intents to those of the next record, which the first is to write.
func (l *Log) gatherIntents(add func(*checkpoint.Record)) (mine *intentBatch, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = l.next == nil; first {
		l.next = &intentBatch{done: make(chan struct{})}
	}
	add(&l.next.record)
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
	for before := l.countEnded(); ; {
		some := checkpoint.Record{}
		upTo := l.addOutcomes(&some)
		if upTo >= before {
			break
		}
		if _, err := l.appendRecord(ctx, some, upTo); err != nil {
			return "", err
		}
	}
	upTo := l.addOutcomes(&rec)
	return l.appendRecord(ctx, rec, upTo)
}

// countEnded returns how many calls and hooks have ended so far.
func (l *Log) countEnded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone + len(l.ended)
}

// appendRecord makes a record durable, which has the outcomes up to that one.
func (l *Log) appendRecord(ctx context.Context, rec checkpoint.Record, upTo int) (key string, err error) {
	if key, err = l.records.Append(ctx, rec); err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := upTo - l.gone; n > 0 {
		l.ended, l.gone = slices.Delete(l.ended, 0, n), upTo
	}
	return key, nil
}

// EndHook keeps the outcome of a hook for the next record.
func (l *Log) EndHook(out *checkpoint.HookOutcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, outcome{hook: out})
}

// End keeps the outcome of a call for the next record.
func (l *Log) End(out *checkpoint.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, outcome{call: out})
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
	return len(l.ended) > 0
}

// addOutcomes adds to a record what it takes of the outcomes that are in none. Records that are written
// at the same time may have the same ones.
func (l *Log) addOutcomes(rec *checkpoint.Record) (upTo int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for i, o := range l.ended {
		if o.hook != nil {
			rec.HookOutcomes = append(rec.HookOutcomes, *o.hook)
			continue
		}
		if size += sizeOf(o.call); size > maxOutcomeBytes && len(rec.Outcomes) > 0 {
			return l.gone + i
		}
		rec.Outcomes = append(rec.Outcomes, *o.call)
	}
	return l.gone + len(l.ended)
}

// sizeOf is about what the answer of an outcome takes in a record.
func sizeOf(o *checkpoint.Outcome) int {
	n := len(o.Body) + len(o.Patch) + itemBytes(o.Additional)
	if o.Begun != nil {
		n += itemBytes(o.Begun.PostOperation)
	}
	return n
}
