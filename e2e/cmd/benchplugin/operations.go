package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// operationsBinary is the name under which operations are begun that go on, and are asked about.
const operationsBinary = "operations"

// benchOperations notes when it is asked about which operation, in a file beside the directory of the
// binary; package bench reads it.
type benchOperations struct {
	plugin.Everything
	plugin.NoCancel
	plugin.NoLogs

	mu    sync.Mutex
	notes *os.File // nil before the first call
}

// Start implements plugin.AsyncBackupItemAction.
func (*benchOperations) Start(_ context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	return &plugin.AsyncBackupOutput{OperationID: in.IdempotencyKey}, nil
}

// Progress implements plugin.Operations.
func (o *benchOperations) Progress(_ context.Context, op plugin.Operation) (plugin.Progress, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.notes == nil {
		path := fmt.Sprintf("%s-polls/%d-%d", filepath.Dir(os.Args[0]), os.Getppid(), os.Getpid())
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return plugin.Progress{}, err
		}
		o.notes = file
	}
	if _, err := fmt.Fprintf(o.notes, "%d %s\n", time.Now().UnixNano(), op.ID); err != nil {
		return plugin.Progress{}, err
	}
	return plugin.Progress{State: plugin.Running, Done: 1, Total: 2, Unit: "Bytes"}, nil
}
