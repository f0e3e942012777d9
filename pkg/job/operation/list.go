package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// formatVersion is the format of lists and records; another one is not understood.
	formatVersion = 1
	// maxBytes bounds a list or a record, maxDecoded what it takes in memory.
	maxBytes   = 64 << 20
	maxDecoded = 128 << 20
)

// ErrDamaged means that a list or a record exists and cannot be understood.
var ErrDamaged = errors.New("damaged records of operations")

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

// prefix is where the job's records lie.
func (j Job) prefix() string {
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
	// Reason is why all of them have to end, for a job that failed before its list was sealed; empty
	// for one that waits for them.
	Reason string `json:"reason,omitempty"`
	// Operations are in the order in which they are numbered: Event.Operation is an index.
	Operations []Operation `json:"operations"`
}

func sealKey(j Job) string { return j.prefix() + "list" }

// Seal makes l the list of operations of its job, or returns the one that was sealed before. No
// action of the job may begin an operation afterwards.
func Seal(ctx context.Context, store objectstore.Store, l List) (List, error) {
	l.FormatVersion = formatVersion
	data, err := json.Marshal(l)
	if err != nil {
		return List{}, fmt.Errorf("encode list of operations: %w", err)
	}
	err = objectstore.CreateBytes(ctx, store, sealKey(l.Job), data)
	if errors.Is(err, objectstore.ErrExists) {
		return Sealed(ctx, store, l.Job)
	}
	if err != nil {
		return List{}, fmt.Errorf("write list of operations: %w", err)
	}
	return l, nil
}

// Sealed returns the list of a job. The error wraps objectstore.ErrNotFound while none is sealed,
// ErrDamaged if it is not understood.
func Sealed(ctx context.Context, store objectstore.Reader, job Job) (List, error) {
	var l List
	if err := read(ctx, store, sealKey(job), &l); err != nil {
		return List{}, fmt.Errorf("list of operations of %s: %w", job, err)
	}
	switch {
	case l.FormatVersion != formatVersion:
		return List{}, fmt.Errorf("list of operations of %s: %w: formatVersion: %d is not supported", job, ErrDamaged, l.FormatVersion)
	case l.Job != job:
		return List{}, fmt.Errorf("list of operations of %s: %w: it belongs to %s", job, ErrDamaged, l.Job)
	}
	return l, nil
}

func read(ctx context.Context, store objectstore.Reader, key string, into any) error {
	data, err := objectstore.ReadAll(ctx, store, key, maxBytes)
	if err != nil {
		return err
	}
	if err := jsonlimit.Unmarshal(data, into, maxDecoded); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}
