package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pidFile lists the processes of a detached cluster, one id on each line, in the order they were
// started.
const pidFile = "pids"

// ErrRunning reports that a detached cluster already runs in a directory.
var ErrRunning = errors.New("a control plane runs there already")

// writePids stores the process IDs of a detached cluster for StopDetached.
func (c *Cluster) writePids() error {
	var text strings.Builder
	for _, pid := range c.Pids() {
		text.WriteString(strconv.Itoa(pid) + "\n")
	}
	if err := os.WriteFile(filepath.Join(c.dir, pidFile), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("remember the processes: %w", err)
	}
	return nil
}

// StopDetached stops the cluster that was started with Config.Detach in dir and removes the
// directory. Only processes that still have dir in their command line are touched: an ID may belong
// to another process by now. No cluster in dir is not an error.
func StopDetached(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	pids, err := ownPids(dir)
	if err != nil {
		return err
	}
	for i := len(pids) - 1; i >= 0; i-- {
		if err := stopPid(pids[i], dir, stopGrace); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// ownPids reads the processes of a detached cluster that are still there and still its own.
func ownPids(dir string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(dir, pidFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, pidFile), err)
		}
		if isClusterProcess(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isClusterProcess reports whether a process is there and has dir in its command line; one that has ended but
// was not waited for has none any more.
func isClusterProcess(pid int, dir string) bool {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(command), dir)
}

func stopPid(pid int, dir string, grace time.Duration) error {
	signal := syscall.SIGTERM
	deadline := time.Now().Add(grace)
	for isClusterProcess(pid, dir) {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop process %d: %w", pid, err)
		}
		time.Sleep(50 * time.Millisecond)
		if time.Now().After(deadline) {
			signal = syscall.SIGKILL
		}
	}
	return nil
}
