package action

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Why Operations cannot report the state of an operation.
var (
	// ErrUnknownOperation means that the action answered that it has no such operation.
	ErrUnknownOperation = errors.New("no such operation")
	// ErrUnknownAction means that there is no action of that kind and name.
	ErrUnknownAction = errors.New("no such action")
	// ErrNoLogs means that the protocol of the action has no logs.
	ErrNoLogs = errors.New("the protocol of the action has no logs")
)

// What names an operation is kept in records, and is at most that long, in bytes.
const (
	// MaxOperationID bounds Operation.ID.
	MaxOperationID = 1 << 10
	// MaxProcess bounds BackupResult.Process and RestoreResult.Process.
	MaxProcess = 256
)

// Operation names work that continues after the call of an action that began it.
type Operation struct {
	// Kind and Action are what the action is registered as, and its name.
	Kind, Action string
	// ID is what the call returned, unique within the action.
	ID string
}

// Operations follows operations that actions began, in processes that all jobs of this instance
// share. Except for ErrUnknownOperation, an error does not mean that the operation failed. job is
// the Backup or Restore as JSON.
type Operations interface {
	// Progress returns how far the operation has come.
	Progress(ctx context.Context, op Operation, job []byte) (Progress, error)
	// Cancel requests the operation to stop; Progress reports its end. grace is how long the
	// caller waits for that, 0 for no limit. accepted is false for an operation that cannot be stopped
	// and runs to its own end.
	Cancel(ctx context.Context, op Operation, job []byte, grace time.Duration) (accepted bool, err error)
	// Logs returns what the operation has logged from since on, oldest first, all of it where since
	// is zero. With follow it continues until the operation or ctx has ended. An error is the last
	// element. An action that keeps no logs has no lines; one whose protocol has none gives
	// ErrNoLogs.
	Logs(ctx context.Context, op Operation, job []byte, since time.Time, follow bool) iter.Seq2[LogLine, error]
}

// Progress is how far an operation has come that an action started.
type Progress struct {
	// Done reports that the operation has ended, well or badly.
	Done bool
	// Err is why it failed, empty for an operation that did not; set only when Done.
	Err string
	// Completed and Total are in Units, whatever the plugin means by it; Total 0 means unknown. Neither
	// is negative.
	Completed, Total int64
	// Units names what is counted, for people.
	Units string
	// Description is the current step, for people.
	Description string
	// Started and Updated are the plugin's own times; zero means it gave none.
	Started, Updated time.Time
}

// LogLine is one line of an operation's log.
type LogLine struct {
	// Time is the plugin's own; zero means it gave none.
	Time time.Time
	// Level is debug, info, warning or error.
	Level   string
	Message string
	// Fields are details by name.
	Fields map[string]string
}
