// Package podexec runs commands in containers of Pods, through the API server.
package podexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// maxOutput bounds what is kept of each stream, in bytes.
const maxOutput = 8 << 10

// Command is a command and where it runs. There is no shell.
type Command struct {
	Namespace, Pod, Container string
	Args                      []string
}

// Output is what a command wrote: the beginning of each stream. The rest is read and dropped.
type Output struct{ Stdout, Stderr string }

// Client runs commands. Safe for concurrent use.
type Client struct {
	config *rest.Config
	rest   *rest.RESTClient
}

// New returns a client of the API server of cfg.
func New(cfg *rest.Config) (*Client, error) {
	config := rest.CopyConfig(cfg)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to run commands in containers: %w", err)
	}
	return &Client{config: config, rest: client}, nil
}

// Run runs a command to its end. It asks over WebSocket, and where a server or a proxy on the way
// does not let that through, over SPDY. The error is how the command ended if it did not succeed,
// or why it did not run. When ctx ends the connection is closed, which may leave the command
// running; the error is the cause then.
func (c *Client) Run(ctx context.Context, cmd *Command) (Output, error) {
	stdout := &outputHead{}
	stderr, err := c.Stream(ctx, cmd, stdout)
	return Output{Stdout: stdout.headText(), Stderr: stderr}, err
}

// Stream is Run with a writer for all that the command writes to stdout. A connection that breaks may look like
// the end of the command: the output has to show by itself whether it is whole.
func (c *Client) Stream(ctx context.Context, cmd *Command, stdout io.Writer) (stderr string, err error) {
	executor, err := c.newExecutor(cmd)
	if err != nil {
		return "", fmt.Errorf("run a command: %w", err)
	}
	head := &outputHead{}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: head})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return head.headText(), err
}

// Exited reports whether an error of Run is that the command ran to its end and returned a failure:
// after any other one it may not have run, or still run.
func Exited(err error) bool { return ExitStatus(err) >= 0 }

// ExitStatus is what the command returned, -1 for an error that is not Exited.
func ExitStatus(err error) int {
	var exit exec.ExitError
	if !errors.As(err, &exit) {
		return -1
	}
	return exit.ExitStatus()
}

func (c *Client) newExecutor(cmd *Command) (remotecommand.Executor, error) {
	url := c.rest.Get().Resource("pods").Namespace(cmd.Namespace).Name(cmd.Pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: cmd.Container, Command: cmd.Args, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	first, err := remotecommand.NewWebSocketExecutor(c.config, "GET", url.String())
	if err != nil {
		return nil, err
	}
	second, err := remotecommand.NewSPDYExecutor(c.config, "POST", url)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// outputHead keeps the beginning of what is written. Safe for concurrent use: a connection that was closed
// may write a little longer.
type outputHead struct {
	mu      sync.Mutex
	kept    []byte
	dropped int
}

// Write implements io.Writer. It never fails.
func (h *outputHead) Write(data []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(len(data), maxOutput-len(h.kept))
	h.kept = append(h.kept, data[:n]...)
	h.dropped += len(data) - n
	return len(data), nil
}

func (h *outputHead) headText() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.TrimRight(strings.ToValidUTF8(string(h.kept), "\uFFFD"), "\n")
	if h.dropped > 0 {
		text = fmt.Sprintf("%s… (%d bytes more)", text, h.dropped)
	}
	return text
}
