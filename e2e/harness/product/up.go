package product

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// ReadyLine is what `holdfast up` prints when everything serves.
const ReadyLine = "holdfast is ready"

const (
	stopTimeout = 30 * time.Second
)

// Server is a running `holdfast up`.
type Server struct {
	*testbed.Process
	DataDir string
	earlier int // bytes of earlier runs in the log
}

// Up starts `holdfast up` with a data directory below dir and returns when it is ready. Its output
// goes to dir/holdfast-up.log.
func (c *CLI) Up(ctx context.Context, dir string, args ...string) (*Server, error) {
	dataDir, plugins := filepath.Join(dir, "data"), filepath.Join(dir, "plugins")
	for _, path := range []string{dataDir, plugins} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
	full := append([]string{
		"--kubeconfig", c.Kubeconfig, "--namespace", c.Namespace, "up", "--data-dir", dataDir, "--plugin-dir", plugins,
	}, args...)
	earlier, err := os.ReadFile(filepath.Join(dir, "holdfast-up.log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	process, err := testbed.StartProcess(testbed.ProcessSpec{Name: "holdfast-up", Path: c.Binary, Args: full, LogDir: dir})
	if err != nil {
		return nil, err
	}
	server := &Server{Process: process, DataDir: dataDir, earlier: len(earlier)}
	if err := server.waitReady(ctx); err != nil {
		server.Shutdown()
		return nil, err
	}
	return server, nil
}

func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, testbed.Patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		log, err := os.ReadFile(s.LogPath())
		if err != nil {
			return err
		}
		if strings.Contains(string(log[s.earlier:]), ReadyLine) {
			return nil
		}
		select {
		case <-s.Done():
			return s.EarlyEnd()
		case <-ctx.Done():
			return fmt.Errorf("holdfast up is not ready: %w; last lines of %s:\n%s", ctx.Err(), s.LogPath(), testbed.Tail(s.LogPath(), 15))
		case <-ticker.C:
		}
	}
}

// Shutdown stops the server with SIGTERM, as a service manager would, and kills it if it takes over
// half a minute.
func (s *Server) Shutdown() { s.Stop(stopTimeout) }

// Bucket is the directory of the default location's bucket.
func (s *Server) Bucket() string { return filepath.Join(s.DataDir, "objects") }

// Files lists the regular files below a directory, relative to it; a directory that does not exist
// holds none.
func Files(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we walk
		}
		if err != nil {
			return err
		}
		if entry.Type().IsRegular() {
			relative, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			files = append(files, relative)
		}
		return nil
	})
	return files, err
}
