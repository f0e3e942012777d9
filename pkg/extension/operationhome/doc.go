// Package operationhome is about operations that live in a plugin's process: the instance of a
// service that has the process answers for them over gRPC, and whoever follows them asks there.
package operationhome

import (
	"errors"
	"fmt"
)

// ErrGone means that the process is gone, and the operation with it.
var ErrGone = errors.New("the process that the operation lived in is gone")

// errNoProcess is ErrGone where the instance itself says so.
var errNoProcess = fmt.Errorf("%w", ErrGone)

// Reasons of the service's errors.
const (
	reasonOtherInstance    = "OTHER_INSTANCE"
	reasonProcessGone      = "PROCESS_GONE"
	reasonOperationUnknown = "OPERATION_UNKNOWN"
	reasonActionUnknown    = "ACTION_UNKNOWN"
	reasonNotRestartable   = "NOT_RESTARTABLE"
)
