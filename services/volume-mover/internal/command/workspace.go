package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/maintain"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
)

// gcPercent is how much the heap grows between two collections in a process with a memory limit.
const gcPercent = 400

// workspace is what a command works with: the location, and a directory of its own.
type workspace struct {
	store *retrystore.Store
	dir   string
	log   *slog.Logger
}

// openWorkspace opens the location of a request. The caller calls close.
func (m *mover) openWorkspace(ctx context.Context, req request.Request, level string) (*workspace, error) {
	log, err := telemetry.NewLogger(m.stderr, level, telemetry.FormatJSON)
	if err != nil {
		return nil, err
	}
	location, err := request.OpenLocation(ctx, req.Location)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(req.CacheDir, "volume-mover-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cache: %w", err), location.Close())
	}
	return &workspace{store: &retrystore.Store{Store: location, Clock: m.clock, Log: log, Budget: storePatience}, dir: dir, log: log}, nil
}

// close is best effort: the process ends, and the cache with its Pod.
func (w *workspace) close() { _, _ = os.RemoveAll(w.dir), w.store.Close() }

// openRepository opens the repository of the request's namespace.
func (w *workspace) openRepository(ctx context.Context, req request.Request, fatal func(error)) (*repository.Repository, error) {
	password, err := readPassword(req.PasswordFile)
	if err != nil {
		return nil, err
	}
	o := repository.Options{
		Namespace: req.Namespace, Password: password, Dir: w.dir, CacheBytes: req.CacheMiB << 20, ReadOnly: req.Upload == nil && req.Forget == nil && req.Maintain == nil, Fatal: fatal,
	}
	if req.Upload != nil && req.Upload.CreateRepository || req.Maintain != nil && req.Maintain.Mode == maintain.ModeCreate {
		return repository.Create(ctx, w.store, o)
	}
	return repository.Open(ctx, w.store, o)
}

// limitMemory sets the memory limit of the process. Below the limit the garbage collector runs rarely: most movers
// end before they reach it.
func limitMemory(req request.Request) {
	if req.MemoryMiB > 0 {
		debug.SetMemoryLimit(req.MemoryMiB << 20)
		debug.SetGCPercent(gcPercent)
	}
}

func readPassword(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxPassword))
	if err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	return string(data), nil
}
