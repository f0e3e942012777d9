// Package leftover completes in the bucket what another server left of a job whose items it had
// done: its operations end as they were followed here, those that nothing here can ask about as
// failed, and the job's results and log say so. The job's phase is its runner's business.
package leftover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Job is a Backup or Restore to complete.
type Job struct {
	Store objectstore.Store
	// Dir is an existing directory for files on their way to the bucket.
	Dir string
	// Owner is the job whose operations may have been followed here.
	Owner operation.Job
	// Operations, Results and Log are the keys of the job's files.
	Operations, Results, Log string
	// Field and Value say in the log which job a line belongs to ("backup", "velero/nightly").
	Field, Value string
	// Source names the writer of the lines.
	Source string
	// Message is the text of an entry in the results.
	Message func(e *joblog.Entry) string
	// Stop is why the job is ended over operations that have not ended: "cancelled by ann". Empty means
	// that the others have failed as itemoperation.Abandoned.
	Stop string
	// Notes are further entries. Their Time and Source are set.
	Notes []joblog.Entry
	// Now is when the job is finalized.
	Now time.Time
	// Confirm returns an error when the job is not this process's any more. It is asked before
	// every write.
	Confirm func(ctx context.Context) error

	counted counters
}

// maxEntries and maxText, in bytes, bound what is said of one job: a bucket must not decide how
// much memory is taken.
const (
	maxEntries = 20_000
	maxText    = 4 << 20
)

// Outcome is what becomes of a job's operations.
type Outcome struct {
	// Errors and Warnings count what the results and the log get.
	Errors, Warnings int
	// Counted are those of Errors that the other server found: it has added them to the errors in the
	// job's status (Velero 1.18), and to neither the results nor the log.
	Counted int
	// Completed and Failed count the operations that the file has, both 0 where it is damaged.
	Completed, Failed int
	// Snapshots are the completed operations on VolumeSnapshots.
	Snapshots int

	counted counters // of the job's object
	damaged bool     // the file of operations cannot be read to its end
	entries []joblog.Entry
	text    int    // what the entries hold, in bytes
	more    int    // entries that are counted only
	ended   string // the file of operations as it has to be; empty when it is so already
}

// Close removes the files of the outcome.
func (o *Outcome) Close() error {
	if o.ended == "" {
		return nil
	}
	return os.Remove(o.ended)
}

// Look reads the operations and writes nothing. Operations that an earlier attempt ended count as
// if they had not ended. A file that is damaged is an error of the job, in the outcome.
func (j *Job) Look(ctx context.Context) (*Outcome, error) {
	o := j.Unread()
	for _, e := range j.Notes {
		o.add(e)
	}
	known, err := j.followed(ctx)
	if errors.Is(err, operation.ErrDamaged) {
		o.add(joblog.Entry{Level: joblog.Error, Message: "the records of the operations cannot be read, those that had not ended count as failed", Err: err.Error()})
		err = nil
	}
	if err != nil {
		return nil, err
	}
	err = j.operations(ctx, o, known)
	if errors.Is(err, itemoperation.ErrCorrupt) {
		o.add(joblog.Entry{Level: joblog.Error, Message: "the operations of the job cannot be read, they count as failed", Err: err.Error()})
		o.damaged, o.Completed, o.Failed = true, 0, 0
		err = nil
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	if o.more > 0 {
		o.entries = append(o.entries, joblog.Entry{Level: joblog.Error, Message: fmt.Sprintf("%d more errors and warnings about operations are not listed", o.more)})
		o.Errors++
	}
	for i := range o.entries {
		o.entries[i].Time, o.entries[i].Source = j.Now, j.Source
	}
	return o, nil
}

func (o *Outcome) add(e joblog.Entry) {
	switch e.Level {
	case joblog.Error:
		o.Errors++
	case joblog.Warning:
		o.Warnings++
	default:
	}
	size := len(e.Message) + len(e.Err) + len(e.Namespace) + len(e.Resource) + len(e.Name)
	if len(o.entries) >= maxEntries || o.text+size > maxText {
		o.more++
		return
	}
	o.text += size
	o.entries = append(o.entries, e)
}

// operations reads the file of operations, and writes into Dir what it has to become.
func (j *Job) operations(ctx context.Context, o *Outcome, known followed) error {
	body, err := j.Store.Get(ctx, j.Operations)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", j.Operations, err)
	}
	defer func() { _ = body.Close() }()
	file, err := os.CreateTemp(j.Dir, "operations-")
	if err != nil {
		return fmt.Errorf("rewrite %s: %w", j.Operations, err)
	}
	from := &objectstore.ErrorReader{Reader: body}
	changed, err := itemoperation.Abandon(from, file, j.Now, func(op *itemoperation.Operation) error {
		if op.Status.Phase == itemoperation.PhaseFailed && !op.Abandoned() && !known.here(op) {
			o.Counted++
		}
		known.end(op)
		j.stop(op)
		o.operation(op)
		return nil
	})
	if err != nil && from.Err != nil {
		err = from.Err // what follows a broken connection looks like damage
	}
	err = errors.Join(err, file.Close())
	if err == nil && changed {
		o.ended = file.Name()
		return nil
	}
	if removed := os.Remove(file.Name()); removed != nil {
		err = errors.Join(err, removed)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", j.Operations, err)
	}
	return nil
}
