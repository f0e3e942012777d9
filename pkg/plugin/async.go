package plugin

import (
	"context"
	"errors"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ErrNoOperation is what Progress, Cancel and Logs return, wrapped or not, for an operation they do
// not know.
var ErrNoOperation = errors.New("no such operation")

// AsyncBackupItemAction begins work on objects that outlives the call. The backup ends when all its
// operations have.
type AsyncBackupItemAction interface {
	Action
	Operations
	// Start begins an operation for an object, after all backup item actions. It should return
	// within seconds. Its error keeps the object out of the backup. A nil output, or one without
	// OperationID, begins none.
	Start(ctx context.Context, in *AsyncBackupInput) (*AsyncBackupOutput, error)
}

// AsyncBackupInput is what an action gets to see of a backup.
type AsyncBackupInput struct {
	BackupInput
	// IdempotencyKey is the same when a Start is repeated because its answer got lost. An action
	// that can tell returns the operation it has begun.
	IdempotencyKey string
}

// AsyncBackupOutput names the operation.
type AsyncBackupOutput struct {
	// Item is what to store, nil for the object as it came.
	Item *unstructured.Unstructured
	// OperationID is unique within the action; empty for no operation.
	OperationID string
	// InProcess means that the operation lives in this process and dies with it.
	InProcess bool
	// AdditionalItems are backed up before the object.
	AdditionalItems []ResourceIdentifier
	// PostOperationItems are backed up again once the operation has ended.
	PostOperationItems []ResourceIdentifier
}

// AsyncRestoreItemAction begins work on objects that outlives the call. The restore ends when all
// its operations have.
type AsyncRestoreItemAction interface {
	Action
	Operations
	// Start begins an operation for an object, after all restore item actions and before the object
	// is created. It should return within seconds. Its error keeps the object from being restored.
	// A nil output, or one without OperationID, begins none.
	Start(ctx context.Context, in *AsyncRestoreInput) (*AsyncRestoreOutput, error)
}

// AsyncRestoreInput is what an action gets to see of a restore.
type AsyncRestoreInput struct {
	RestoreInput
	// IdempotencyKey is the same when a Start is repeated because its answer got lost. An action
	// that can tell returns the operation it has begun.
	IdempotencyKey string
}

// AsyncRestoreOutput names the operation.
type AsyncRestoreOutput struct {
	// Item is what to create, nil for the object as it came.
	Item *unstructured.Unstructured
	// OperationID is unique within the action; empty for no operation.
	OperationID string
	// InProcess means that the operation lives in this process and dies with it.
	InProcess bool
	// AdditionalItems are restored before the object.
	AdditionalItems []ResourceIdentifier
	// SkipRestore keeps the object from being created and ignores AdditionalItems. The operation
	// goes on.
	SkipRestore bool
}

// Operations is what a server calls for operations that were begun. Unless an operation is
// InProcess, it may be asked of another process than the one that began it.
type Operations interface {
	// Progress returns how far an operation is. It is called every few seconds.
	Progress(ctx context.Context, op Operation) (Progress, error)
	// Cancel requests the end of an operation and returns at once. grace is how long the server
	// waits for that, 0 for no limit. It returns false if the operation cannot be cancelled. Embed
	// NoCancel if none can.
	Cancel(ctx context.Context, op Operation, grace time.Duration) (accepted bool, err error)
	// Logs returns what an operation has logged, oldest first, and ends at its first error. With
	// Follow it continues until the operation or ctx ended. Embed NoLogs if there are none.
	Logs(ctx context.Context, op Operation, options LogOptions) iter.Seq2[LogLine, error]
}

// Operation names an operation.
type Operation struct {
	// ID is what Start returned.
	ID string
	// Job is the Backup or Restore it belongs to.
	Job *Job
}

// LogOptions defines which lines to return.
type LogOptions struct {
	// Since leaves out earlier lines; zero for none.
	Since time.Time
	// Follow continues with new lines.
	Follow bool
}

// LogLine is one line of an operation's log.
type LogLine struct {
	// Time it was logged.
	Time time.Time
	// Level is debug, info, warning or error.
	Level string
	// Message describes what happened.
	Message string
	// Fields are details by name.
	Fields map[string]string
}

// NoCancel can be embedded by actions whose operations cannot be cancelled.
type NoCancel struct{}

// Cancel does nothing and reports that.
func (NoCancel) Cancel(context.Context, Operation, time.Duration) (bool, error) { return false, nil }

// NoLogs can be embedded by actions whose operations have no logs.
type NoLogs struct{}

// Logs returns no lines.
func (NoLogs) Logs(context.Context, Operation, LogOptions) iter.Seq2[LogLine, error] {
	return func(func(LogLine, error) bool) {}
}
