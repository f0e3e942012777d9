package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ProcessSpec is what to run.
type ProcessSpec struct {
	Name   string   // names the log file and the process in errors
	Path   string   // the executable
	Args   []string // its arguments
	Env    []string // added to this process's environment
	LogDir string   // standard output and error go to LogDir/Name.log, appended
	Detach bool     // keeps running when this process ends
}

// Process is a running child process. Its methods are safe for concurrent use.
type Process struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	done    chan struct{}
	err     error // of Wait; read after done is closed
	stop    sync.Once
}

// StartProcess starts a child process in a process group of its own, so that a Ctrl-C at the
// terminal reaches only the parent, which stops its children in order. Unless detached, the child
// is killed by the kernel (on Linux) when the parent dies.
func StartProcess(spec ProcessSpec) (*Process, error) {
	logPath := filepath.Join(spec.LogDir, spec.Name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	cmd := exec.Command(spec.Path, spec.Args...) //nolint:noctx // it runs until Stop
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes(!spec.Detach)
	p := &Process{name: spec.Name, logPath: logPath, cmd: cmd, done: make(chan struct{})}

	started := make(chan error, 1)
	go func() {
		// The kernel's parent-death signal is bound to the thread that forked: keep that thread
		// until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// LogPath returns the file that holds the process's output.
func (p *Process) LogPath() string { return p.logPath }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended: nil while it runs and after exit code 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal to the process; a process that has ended is not an error.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Stop sends SIGTERM to the process, kills it after the grace period, and returns when it is
// gone.
func (p *Process) Stop(grace time.Duration) {
	p.stop.Do(func() { _ = p.Signal(syscall.SIGTERM) })
	select {
	case <-p.done:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Kill ends the process at once, as a crash would (SIGKILL), and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// EarlyEnd describes a process that ended although it should run, with the last lines of its log.
func (p *Process) EarlyEnd() error {
	how := "exit code 0"
	if err := p.Err(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%s ended early (%s); last lines of %s:\n%s", p.name, how, p.logPath, Tail(p.logPath, 15))
}

// Tail returns the last lines of a file, for error messages; it is empty when the file cannot be
// read.
func Tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Complaints returns the last lines of a service's log that are no everyday ones: warnings, errors,
// and what is no log line, as a panic. A failed test shows them rather than everything, under which
// its own message would be lost.
func Complaints(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	complaints := slices.DeleteFunc(strings.Split(strings.TrimRight(string(data), "\n"), "\n"), func(line string) bool {
		return strings.Contains(line, " level=INFO ") || strings.Contains(line, " level=DEBUG ")
	})
	return strings.Join(complaints[max(0, len(complaints)-lines):], "\n")
}
