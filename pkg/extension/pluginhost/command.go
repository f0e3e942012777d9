package pluginhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// maxHandshake bounds the handshake line with the address of a process, in bytes.
const maxHandshake = 4 << 10

// errAddress means that a process listens somewhere else than on a unix socket.
var errAddress = errors.New("plugin does not listen on a unix socket")

// command is a plugin's process, started by go-plugin through its interface Runner. It exists
// because go-plugin's own runner would parse hostile output (a message that is no string panics in
// it), wait without limit for pipes that a grandchild holds, and leave children behind.
type command struct {
	cmd       *exec.Cmd
	output    *output
	hello     *firstLine
	exited    chan struct{} // closed when the process is gone and its output was taken
	ended     error         // of the process; read after exited
	crashLine string        // in which it reported a panic, or empty; read after exited

	mu     sync.Mutex
	pid    int // 0 before the start and when the id may belong to another process
	killed bool
	name   string
}

func newCommand(path string, args []string, out *output, stop time.Duration) *command {
	hello := newFirstLine()
	cmd := exec.Command(path, args...) //nolint:noctx // its end is the business of kill, which takes its children too
	cmd.Stdout, cmd.Stderr = hello, out
	cmd.WaitDelay = stop // for a grandchild that keeps the pipes open
	cmd.SysProcAttr = ownGroup()
	return &command{cmd: cmd, output: out, hello: hello, exited: make(chan struct{}), name: path}
}

// Start starts the process. The goroutine that forks stays on its thread until the process has
// gone, because the kernel takes the end of that thread for the end of the parent.
func (c *command) Start(context.Context) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		if err != nil {
			c.hello.endLine()
			c.ended = err
			close(c.exited)
			started <- err
			return
		}
		c.noteStarted()
		started <- nil
		c.awaitExit()
	}()
	return <-started
}

// processID is the id of the process; 0 before the start, and when it may belong to another process.
func (c *command) processID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// noteStarted notes the id of the process, which may have been killed before it had one.
func (c *command) noteStarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = c.cmd.Process.Pid
	if c.killed {
		killGroup(c.pid)
	}
}

// awaitExit waits for the process and closes exited.
func (c *command) awaitExit() {
	c.ended = c.reapProcess()
	c.hello.endLine()
	c.crashLine = c.output.endOutput()
	close(c.exited)
}

// killGroup kills the children that the process leaves behind.
func (c *command) killGroup() {
	c.mu.Lock()
	defer c.mu.Unlock()
	killGroup(c.pid)
	c.pid = 0
}

// Wait waits for the end of the process.
func (c *command) Wait(context.Context) error {
	<-c.exited
	return c.ended
}

// Kill ends the process and everything it started. It may be called at any time: a process that is
// not there yet ends when it is.
func (c *command) Kill(context.Context) error {
	c.killProcess()
	return nil
}

func (c *command) killProcess() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	killGroup(c.pid)
}

func (c *command) hasExited() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// exitReason is how the process ended, with the line in which it reported why.
func (c *command) exitReason() string {
	reason := "exit status 0"
	if c.ended != nil && !errors.Is(c.ended, exec.ErrWaitDelay) {
		reason = c.ended.Error()
	}
	if c.crashLine != "" {
		reason += ": " + c.crashLine
	}
	return reason
}

// Stdout has the handshake's line and nothing else; later output is discarded.
func (c *command) Stdout() io.ReadCloser { return c.hello }

// Stderr is empty: output has it.
func (c *command) Stderr() io.ReadCloser { return io.NopCloser(bytes.NewReader(nil)) }

// Name is the path of the binary.
func (c *command) Name() string { return c.name }

// ID is the process id.
func (c *command) ID() string {
	if c.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(c.cmd.Process.Pid)
}

// Diagnose has nothing to add: the output was logged.
func (c *command) Diagnose(context.Context) string { return "" }

// PluginToHost accepts unix sockets only: a plugin must not send us to another machine.
func (c *command) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" {
		return "", "", fmt.Errorf("%w but on %s", errAddress, network)
	}
	if _, err := net.ResolveUnixAddr(network, address); err != nil {
		return "", "", fmt.Errorf("%w: %w", errAddress, err)
	}
	return network, address, nil
}

// HostToPlugin changes nothing.
func (c *command) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// handshakeFields is how many fields the handshake's line has for us. In the sixth a process may
// offer a certificate, for which go-plugin needs a configuration of TLS that there is none of.
const handshakeFields = 5

// firstLine keeps the fields of the first line written to it that count for one reader, and
// discards the rest.
type firstLine struct {
	line  bytes.Buffer
	over  sync.Once
	ready chan struct{}
}

func newFirstLine() *firstLine { return &firstLine{ready: make(chan struct{})} }

// Write takes everything.
func (f *firstLine) Write(p []byte) (int, error) {
	select {
	case <-f.ready:
		return len(p), nil
	default:
	}
	line, _, whole := bytes.Cut(p, []byte{'\n'})
	f.line.Write(line[:min(len(line), maxHandshake-f.line.Len())])
	if whole || f.line.Len() == maxHandshake {
		f.endLine()
	}
	return len(p), nil
}

func (f *firstLine) endLine() {
	f.over.Do(func() {
		fields := bytes.SplitN(f.line.Bytes(), []byte{'|'}, handshakeFields+1)
		if len(fields) > handshakeFields {
			f.line.Truncate(f.line.Len() - len(fields[handshakeFields]) - 1)
		}
		close(f.ready)
	})
}

// Read waits for the line to be whole, or for the end of the process.
func (f *firstLine) Read(p []byte) (int, error) {
	<-f.ready
	return f.line.Read(p)
}

// Close does nothing.
func (f *firstLine) Close() error { return nil }
