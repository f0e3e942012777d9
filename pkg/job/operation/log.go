package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// ErrConflict means that another process wrote the next record. The log has it; what was to be
// written must be decided on again.
var ErrConflict = errors.New("another process recorded operations of the job")

// Log is the list of a job's operations and what happened to them since. Not safe for concurrent
// use.
type Log struct {
	store  objectstore.Store
	list   List
	states []State
	seq    int64 // of the last record that was read
}

// journalEntry holds events.
type journalEntry struct {
	FormatVersion int     `json:"formatVersion"`
	UID           string  `json:"uid"`
	Seq           int64   `json:"seq"`
	Events        []Event `json:"events"`
}

func recordsPrefix(j Job) string        { return j.recordPrefix() + "record-" }
func recordKey(j Job, seq int64) string { return fmt.Sprintf("%s%010d", recordsPrefix(j), seq) }

// Open reads the sealed list of a job and all its records. The error wraps objectstore.ErrNotFound
// while no list is sealed, ErrDamaged if it or a record is not understood.
func Open(ctx context.Context, store objectstore.Store, job Job) (*Log, error) {
	list, err := readList(ctx, store, job)
	if err != nil {
		return nil, err
	}
	l := NewLog(job, list.Operations)
	l.Use(store)
	return l, l.Refresh(ctx)
}

// NewLog returns a log of operations of which no list is sealed. Nothing can be recorded in it.
func NewLog(job Job, operations []Operation) *Log {
	l := &Log{list: List{Job: job, Operations: operations}, states: make([]State, len(operations))}
	for i := range l.states {
		l.states[i].Phase = New
	}
	return l
}

// Use makes store the one that holds the records. A log that is kept longer than its store is open
// needs another one.
func (l *Log) Use(store objectstore.Store) { l.store = store }

// Operations returns the operations, which must not be changed.
func (l *Log) Operations() []Operation { return l.list.Operations }

// States returns the states, in the order of Operations. The caller may change progress, and the
// phase from New to InProgress: those are not recorded.
func (l *Log) States() []State { return l.states }

// Ended reports that all operations have ended.
func (l *Log) Ended() bool {
	return !slices.ContainsFunc(l.states, func(s State) bool { return !s.Phase.Ended() })
}

// Count returns how many operations have completed and failed.
func (l *Log) Count() (completed, failed int) {
	for i := range l.states {
		switch l.states[i].Phase {
		case Completed:
			completed++
		case Failed:
			failed++
		}
	}
	return completed, failed
}

// reads is how many records are fetched at once.
const reads = 4

// Refresh reads the records that were written since.
func (l *Log) Refresh(ctx context.Context) error {
	last, err := l.lastSequence(ctx)
	if err != nil {
		return fmt.Errorf("records of operations of %s: %w", l.list.Job, err)
	}
	for l.seq < last {
		batch := make([]journalEntry, min(reads, last-l.seq))
		err := panics.ForEach(ctx, reads, len(batch), func(ctx context.Context, i int) (err error) {
			batch[i], err = l.readRecord(ctx, l.seq+1+int64(i))
			return err
		})
		if err != nil {
			return fmt.Errorf("records of operations of %s: %w", l.list.Job, err)
		}
		for i := range batch {
			if err := l.applyRecord(&batch[i]); err != nil {
				return fmt.Errorf("records of operations of %s: %w", l.list.Job, err)
			}
		}
	}
	return nil
}

// lastSequence returns the number of the last record there is.
func (l *Log) lastSequence(ctx context.Context) (int64, error) {
	last, prefix := int64(0), recordsPrefix(l.list.Job)
	err := l.store.List(ctx, prefix, func(i objectstore.Info) error {
		seq, err := strconv.ParseInt(strings.TrimPrefix(i.Key, prefix), 10, 64)
		if err != nil || seq != last+1 {
			return fmt.Errorf("%w: %s is not record %d", ErrDamaged, i.Key, last+1)
		}
		last = seq
		return nil
	})
	return last, err
}

// records are the records of all jobs.
var records = journal.DocumentKind[journalEntry]{Name: "record of operations", MaxBytes: maxReadBytes, MaxDecoded: maxDecoded}

func (l *Log) readRecord(ctx context.Context, seq int64) (journalEntry, error) {
	return records.Read(ctx, l.store, recordKey(l.list.Job, seq), func(r *journalEntry) error {
		if r.FormatVersion != formatVersion || r.UID != l.list.Job.UID || r.Seq != seq {
			return fmt.Errorf("record %d has format %d, uid %q and number %d", seq, r.FormatVersion, r.UID, r.Seq)
		}
		return nil
	})
}

func (l *Log) applyRecord(r *journalEntry) error {
	for i := range r.Events {
		r.Events[i].cutTexts()
		if err := applyEvent(l.states, &r.Events[i]); err != nil {
			return err
		}
	}
	l.seq = r.Seq
	return nil
}

const (
	// maxRecordBytes bounds the events that CountFitting puts into a record, maxReadBytes a record that is read and
	// maxDecoded what that takes in memory; as many as reads are in memory at once.
	maxRecordBytes = 1 << 20
	maxReadBytes   = maxRecordBytes + maxRecordBytes/4
	maxDecoded     = 6 << 20
)

// CountFitting returns how many of the events, from the first one on, go into one record: at least one.
func CountFitting(events []Event) int {
	size := 0
	for i := range events {
		data, err := json.Marshal(&events[i])
		if size += len(data) + 1; i > 0 && (err != nil || size > maxRecordBytes) {
			return i
		}
	}
	return len(events)
}

// Append makes events durable as the next record, and applies them. A record that no reader would
// take is journal.ErrDocumentTooLarge and not written. Where another process wrote
// that number, its record is read instead and the error is ErrConflict. After another error the
// record may be there or not: the next call finds out.
func (l *Log) Append(ctx context.Context, events ...Event) error {
	r := journalEntry{FormatVersion: formatVersion, UID: l.list.Job.UID, Seq: l.seq + 1, Events: events}
	err := records.CreateNew(ctx, l.store, recordKey(l.list.Job, r.Seq), r)
	if errors.Is(err, objectstore.ErrExists) {
		if err := l.Refresh(ctx); err != nil {
			return err
		}
		return ErrConflict
	}
	if err != nil {
		return fmt.Errorf("operations of %s: %w", l.list.Job, err)
	}
	return l.applyRecord(&r)
}
