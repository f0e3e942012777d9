package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
)

// exchangeVariable names the directory through which work is handed over. It takes the place of the
// API that your controller serves; without it nothing is handed over.
const exchangeVariable = "EXAMPLE_EXCHANGE"

// request is one operation, as a file of the directory: this plugin writes what it wants, and
// whoever does the work writes how it goes.
type request struct {
	Claim  string    `json:"claim"`
	Began  time.Time `json:"began"`
	Cancel bool      `json:"cancel,omitempty"`
	// State is empty, Done or Failed.
	State string `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	Of    int64  `json:"of,omitempty"`
}

// handOver has work on claims done elsewhere. Its operations live outside of this process, so any
// process of this binary can tell how they go, also one that Velero starts.
type handOver struct {
	plugin.Everything
	plugin.NoLogs
	directory string
}

func newHandOver() handOver { return handOver{directory: os.Getenv(exchangeVariable)} }

func newBackupHandOver(plugin.Env) (plugin.AsyncBackupItemAction, error) {
	return backupHandOver{newHandOver()}, nil
}

func newRestoreHandOver(plugin.Env) (plugin.AsyncRestoreItemAction, error) {
	return restoreHandOver{newHandOver()}, nil
}

type backupHandOver struct{ handOver }

// Start asks for the work. The key names the request, so a repeated call finds that of the first.
func (a backupHandOver) Start(_ context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	id, err := a.makeRequest("backup", in.IdempotencyKey, in.Item)
	return &plugin.AsyncBackupOutput{OperationID: id}, err
}

type restoreHandOver struct{ handOver }

// Start is that of a backup.
func (a restoreHandOver) Start(_ context.Context, in *plugin.AsyncRestoreInput) (*plugin.AsyncRestoreOutput, error) {
	id, err := a.makeRequest("restore", in.IdempotencyKey, in.Item)
	return &plugin.AsyncRestoreOutput{OperationID: id}, err
}

func (a handOver) requestPath(id string) string {
	return filepath.Join(a.directory, strings.ReplaceAll(id, string(filepath.Separator), "_")+".json")
}

func (a handOver) makeRequest(what, key string, claim *unstructured.Unstructured) (id string, err error) {
	if a.directory == "" {
		return "", nil
	}
	id = what + "-" + key
	if _, err := os.Lstat(a.requestPath(id)); err == nil {
		return id, nil
	}
	now := time.Now().UTC().Truncate(time.Second) //nolint:forbidigo // nothing that is tested depends on it
	return id, a.writeRequest(id, request{Claim: claim.GetNamespace() + "/" + claim.GetName(), Began: now})
}

// writeRequest makes a request whole or not at all.
func (a handOver) writeRequest(id string, r request) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(a.requestPath(id)+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(a.requestPath(id)+".new", a.requestPath(id))
}

func (a handOver) readRequest(id string) (r request, err error) {
	text, err := os.ReadFile(a.requestPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("request %s: %w", id, plugin.ErrNoOperation)
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// Progress reports how the work goes.
func (a handOver) Progress(_ context.Context, op plugin.Operation) (plugin.Progress, error) {
	r, err := a.readRequest(op.ID)
	if err != nil {
		return plugin.Progress{}, err
	}
	p := plugin.Progress{State: plugin.Running, Done: r.Bytes, Total: r.Of, Unit: "Bytes", Description: "moving " + r.Claim, Started: r.Began}
	switch {
	case r.State == "Done":
		p.State = plugin.Succeeded
	case r.State == "Failed":
		p.State, p.Error = plugin.Failed, r.Error
	case r.State == "" && r.Cancel && r.Bytes == 0: // nobody has begun
		p.State = plugin.Cancelled
	}
	return p, nil
}

// Cancel asks whoever does the work to stop.
func (a handOver) Cancel(_ context.Context, op plugin.Operation, _ time.Duration) (bool, error) {
	r, err := a.readRequest(op.ID)
	if err != nil {
		return false, err
	}
	r.Cancel = true
	return true, a.writeRequest(op.ID, r)
}
