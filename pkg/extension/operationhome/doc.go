// Package operationhome follows operations that run in a plugin's process: the instance of a
// service that has the process reports their progress over gRPC to the other instances.
package operationhome

import "errors"

// ErrGone means that the process is gone, and the operation with it.
var ErrGone = errors.New("the process that the operation lived in is gone")

// Reasons of the service's errors.
const (
	reasonOtherInstance    = "OTHER_INSTANCE"
	reasonProcessGone      = "PROCESS_GONE"
	reasonOperationUnknown = "OPERATION_UNKNOWN"
	reasonActionUnknown    = "ACTION_UNKNOWN"
)
