package operation

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// formatVersion is the format of lists and records; another one is not understood.
const formatVersion = 1

// ErrDamaged means that a list or a record exists and cannot be understood, or is too large.
var ErrDamaged = journal.ErrDocumentDamaged

// Job is a job with operations.
type Job struct {
	// Kind is KindBackup or KindRestore.
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// The kinds of jobs with operations.
const (
	KindBackup  = "Backup"
	KindRestore = "Restore"
)

// String returns "Backup name (uid ...)".
func (j Job) String() string { return j.Kind + " " + j.Name + " (uid " + j.UID + ")" }

// recordPrefix is where the job's records lie.
func (j Job) recordPrefix() string {
	if j.Kind == KindRestore {
		return layout.RestoreOperations(j.Name, j.UID)
	}
	return layout.BackupOperations(j.Name, j.UID)
}

// List is the sealed list of a job's operations.
type List struct {
	FormatVersion int `json:"formatVersion"`
	Job           Job `json:"job"`
	// Epoch is that of the holder that sealed the list.
	Epoch int64 `json:"epoch"`
	// Operations are in the order in which they are numbered: Event.Operation is an index.
	Operations []Operation `json:"operations"`
}

func sealKey(j Job) string { return j.recordPrefix() + "list" }

// Seal makes l the list of operations of its job, or returns the one that was sealed before. No
// action of the job may begin an operation afterwards. The error wraps document.ErrTooLarge where
// no reader would take the list.
func Seal(ctx context.Context, store objectstore.Store, l List) (List, error) {
	l.FormatVersion = formatVersion
	text, err := encodeList(&l)
	if err == nil {
		err = objectstore.CreateBytes(ctx, store, sealKey(l.Job), text)
	}
	if errors.Is(err, objectstore.ErrExists) {
		return readList(ctx, store, l.Job)
	}
	if err != nil {
		return List{}, fmt.Errorf("write list of operations of %s: %w", l.Job, err)
	}
	return l, nil
}

// readList returns the list of a job. The error wraps objectstore.ErrNotFound while none is sealed,
// ErrDamaged if it is not understood.
func readList(ctx context.Context, store objectstore.Reader, job Job) (List, error) {
	body, err := store.Get(ctx, sealKey(job))
	if err != nil {
		return List{}, fmt.Errorf("read list of operations of %s: %w", job, err)
	}
	from := &objectstore.ErrorReader{Reader: body}
	var l List
	l.Operations, err = Decode(from, l.decodeMember)
	if from.Err != nil {
		err = fmt.Errorf("read list of operations of %s: %w", job, from.Err) // no damage
	} else {
		if err == nil {
			err = job.checkList(&l)
		}
		if err != nil {
			err = fmt.Errorf("list of operations of %s: %w: %w", job, ErrDamaged, err)
		}
	}
	if err = errors.Join(err, body.Close()); err != nil {
		return List{}, err
	}
	return l, nil
}

func (j Job) checkList(l *List) error {
	switch {
	case l.FormatVersion != formatVersion:
		return fmt.Errorf("formatVersion: %d is not supported", l.FormatVersion)
	case l.Job != j:
		return fmt.Errorf("it belongs to %s", l.Job)
	}
	return nil
}
