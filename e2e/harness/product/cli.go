package product

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// CLI runs bin/holdfast. It is safe for concurrent use.
type CLI struct {
	Binary     string    // path of bin/holdfast
	Kubeconfig string    // file
	Namespace  string    // of the server
	Output     io.Writer // gets a copy of what the commands print; nil is silent; one command at a time when set
}

// ExitError is a command that ended with another code than 0.
type ExitError struct {
	Args   []string
	Code   int
	Output string // both streams
}

// Error implements error.
func (e *ExitError) Error() string {
	return fmt.Sprintf("holdfast %s ended with exit code %d: %s", strings.Join(e.Args, " "), e.Code, lastLines(e.Output, 10))
}

// Run runs one command and returns its standard output. A code other than 0 is an *ExitError. When
// ctx ends the command is interrupted first and killed if it does not end within five seconds.
func (c *CLI) Run(ctx context.Context, args ...string) (string, error) {
	full := append([]string{"--kubeconfig", c.Kubeconfig, "--namespace", c.Namespace}, args...)
	cmd := exec.CommandContext(ctx, c.Binary, full...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches us alone, we pass it on
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	var stdout, both bytes.Buffer
	shared := c.teeOutput(&both)
	cmd.Stdout = io.MultiWriter(&stdout, shared)
	cmd.Stderr = shared
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return stdout.String(), fmt.Errorf("holdfast %s: %w", strings.Join(args, " "), context.Cause(ctx))
	case errors.As(err, &exit):
		return stdout.String(), &ExitError{Args: args, Code: exit.ExitCode(), Output: both.String()}
	case err != nil:
		return stdout.String(), fmt.Errorf("holdfast %s: %w", strings.Join(args, " "), err)
	}
	return stdout.String(), nil
}

// teeOutput writes to the buffer and, when there is one, to the output. os/exec copies each stream from a
// goroutine of its own, hence the lock.
func (c *CLI) teeOutput(buffer *bytes.Buffer) io.Writer {
	if c.Output == nil {
		return &lockedWriter{to: buffer}
	}
	return &lockedWriter{to: io.MultiWriter(buffer, c.Output)}
}

// lockedWriter lets two goroutines write to one writer.
type lockedWriter struct {
	mutex sync.Mutex
	to    io.Writer
}

// Write implements io.Writer.
func (w *lockedWriter) Write(data []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.to.Write(data)
}

// Status is what the demo and the scenarios read of a Backup or Restore.
type Status struct {
	Phase            string   `json:"phase"`
	FailureReason    string   `json:"failureReason"`
	ValidationErrors []string `json:"validationErrors"`
	Warnings         int      `json:"warnings"`
	Errors           int      `json:"errors"`
	Progress         struct {
		TotalItems    int `json:"totalItems"`
		ItemsBackedUp int `json:"itemsBackedUp"`
		ItemsRestored int `json:"itemsRestored"`
	} `json:"progress"`
}

// Status reads the status of a custom resource with `holdfast <noun> get <name> -o json`; noun is
// backup or restore.
func (c *CLI) Status(ctx context.Context, noun, name string) (Status, error) {
	quiet := *c
	quiet.Output = nil
	output, err := quiet.Run(ctx, noun, "get", name, "-o", "json")
	if err != nil {
		return Status{}, err
	}
	var object struct {
		Status Status `json:"status"`
	}
	if err := json.Unmarshal([]byte(output), &object); err != nil {
		return Status{}, fmt.Errorf("holdfast %s get %s -o json: %w", noun, name, err)
	}
	return object.Status, nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
