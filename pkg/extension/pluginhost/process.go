package pluginhost

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"github.com/prometheus/client_golang/prometheus"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

// Velero's handshake: protocol version 2 and this variable in the environment.
const (
	protocolVersion = 2
	cookieKey       = "VELERO_PLUGIN"
	cookieValue     = "hello"
)

// brokerMethod opens go-plugin's broker, through which a plugin could ask for more connections.
// Velero's protocol has no use for it, so a plugin is not given the means.
const brokerMethod = "/plugin.GRPCBroker/StartStream"

// maxHeaders bounds the metadata of an answer in bytes; errors travel in it.
const maxHeaders = 256 << 10

// maxSocketDir is how long a directory's path may be for sockets to find room in it: of the
// kernel's 107 bytes for a socket's path, what go-plugin and we append takes up to 52.
const maxSocketDir = 107 - 52

// errSlowStart means that a process does not answer soon enough after its start.
var errSlowStart = errors.New("timeout while waiting for plugin to start")

// crashTimeout is how long a broken connection may take to be recognised as one, and its process to
// be seen dead.
const crashTimeout = time.Second

// processSpec is how to start processes of one binary.
type processSpec struct {
	path      string
	args, env []string
	socketDir string
	log       *slog.Logger
	clock     clock.WithTicker
	limits    Limits
	calls     *prometheus.HistogramVec
}

// process is a plugin process that listens.
type process struct {
	// id differs for every start of every process.
	id      string
	cmd     *command
	client  *goplugin.Client
	conn    *grpc.ClientConn
	spec    *processSpec
	sockets string // the directory of its socket

	// dialed is the last connection that go-plugin opened: go-plugin itself does not close one whose
	// setup fails.
	dialed atomic.Pointer[grpc.ClientConn]

	// These belong to the worker.
	calls      int
	blamed     map[who]struct{} // plugins against which its death was counted
	draining   bool
	operations int       // that live in it
	silences   int       // calls in a row that were not answered in time, where that does not end it
	used       time.Time // when it was last given back

	// started is the start ID that it reported, once that was read.
	started atomic.Pointer[string]

	// initialized belongs to the storage whose turn it is: the process has the configuration.
	initialized bool
}

// connection is the only thing asked of go-plugin to dispense.
type connection struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (connection) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host")
}

func (connection) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// startProcess starts a process and connects to it; the end of ctx interrupts that. Errors wrap ErrStart.
func (s *processSpec) startProcess(ctx context.Context) (p *process, err error) {
	err = span.Do(ctx, "start plugin process", func(ctx context.Context) error {
		p, err = s.launchProcess(ctx)
		if err == nil {
			trace.SpanFromContext(ctx).SetAttributes(semconv.ProcessPID(p.cmd.processID()))
		}
		return err
	}, semconv.ProcessExecutableName(s.binaryName()))
	return p, err
}

// binaryName is the name of the binary.
func (s *processSpec) binaryName() string { return filepath.Base(s.path) }

// launchProcess is start without its span.
func (s *processSpec) launchProcess(ctx context.Context) (*process, error) {
	if base := orDefault(s.socketDir, os.TempDir()); len(base) > maxSocketDir {
		return nil, fmt.Errorf("%w: directory for sockets %s: longer than %d bytes", ErrStart, base, maxSocketDir)
	}
	sockets, err := os.MkdirTemp(s.socketDir, "hf-")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	p := &process{id: rand.Text(), spec: s, sockets: sockets, blamed: map[who]struct{}{}}
	p.cmd = newCommand(s.path, s.args, newOutput(ctx, s.log.With("plugin", s.binaryName()), s.clock, s.limits), s.limits.Stop)
	p.client = goplugin.NewClient(p.clientConfig())
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := p.limitStart(ctx, end)
	err = guardPanic(func() (err error) { p.conn, err = connectClient(p.client); return err })
	done()
	if err != nil {
		p.endProcess()
		return nil, s.notStarted(ctx, p.cmd, err)
	}
	return p, nil
}

// limitStart gives the start as a whole its time: go-plugin limits only the wait for the
// handshake's line, and then waits for whatever the process does with the connection. When the time
// is over, or ctx, the process ends; done ends the limit.
func (p *process) limitStart(ctx context.Context, end context.CancelCauseFunc) (done func()) {
	timer := p.spec.clock.NewTimer(p.spec.limits.Start)
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-over:
			return
		case <-timer.C():
			end(errSlowStart)
		case <-ctx.Done():
		}
		p.cmd.killProcess()
		p.closeConnection()
	}()
	return func() {
		timer.Stop()
		close(over)
		<-watched
	}
}

// closeConnection closes the connection, if there is one.
func (p *process) closeConnection() {
	if conn := p.dialed.Load(); conn != nil {
		_ = conn.Close() // usually not the only time
	}
}

func (p *process) clientConfig() *goplugin.ClientConfig {
	s := p.spec
	return &goplugin.ClientConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{ProtocolVersion: protocolVersion, MagicCookieKey: cookieKey, MagicCookieValue: cookieValue},
		Plugins:          goplugin.PluginSet{"": connection{}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		RunnerFunc: func(_ hclog.Logger, wanted *exec.Cmd, _ string) (runner.Runner, error) {
			p.cmd.cmd.Env = slices.Concat(s.env, wanted.Env)
			return p.cmd, nil
		},
		SkipHostEnv:      true,
		StartTimeout:     s.limits.Start,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: p.sockets},
		Logger:           hclog.NewNullLogger(), // its messages are in the errors
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.limits.Answer), grpc.ForceCodecV2(newCodec())),
			grpc.WithMaxHeaderListSize(maxHeaders),
			grpc.WithStatsHandler(sentMarker{}),
			grpc.WithStatsHandler(callTimes{plugin: filepath.Base(s.path), calls: s.calls}),
			grpc.WithChainUnaryInterceptor(p.traceCall),
			grpc.WithChainStreamInterceptor(p.openStream),
		},
	}
}

// openStream refuses the broker's stream, and keeps the connection.
func (p *process) openStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p.dialed.Store(conn)
	if method == brokerMethod {
		return nil, status.Error(codes.Unimplemented, "the broker is not used")
	}
	return next(ctx, desc, conn, method, opts...)
}

func connectClient(client *goplugin.Client) (*grpc.ClientConn, error) {
	rpc, err := client.Client()
	if err != nil {
		return nil, err
	}
	raw, err := rpc.Dispense("")
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("go-plugin dispensed a %T", raw)
	}
	return conn, nil
}

func (s *processSpec) notStarted(ctx context.Context, cmd *command, err error) error {
	if ctx.Err() != nil && !errors.Is(contextCause(ctx), errSlowStart) {
		return fmt.Errorf("%w: %w", ErrStart, contextCause(ctx))
	}
	if ctx.Err() != nil {
		err = errSlowStart
	}
	// The process was killed for not answering, unless it had died before: then it has a crashLine.
	if cmd.crashLine != "" {
		return fmt.Errorf("%w: %s: %s", ErrStart, clipText(err.Error()), cmd.crashLine)
	}
	return fmt.Errorf("%w: %s", ErrStart, clipText(err.Error()))
}

// isProcessLost reports whether a failed call failed because the process or the connection is gone. A plugin
// may itself answer Unavailable; then both are there a moment later.
func (p *process) isProcessLost(ctx context.Context, err error) bool {
	if p.cmd.hasExited() {
		return true
	}
	if status.Code(err) != codes.Unavailable {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), crashTimeout)
	defer cancel()
	go func() {
		select {
		case <-p.cmd.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	return p.conn.WaitForStateChange(ctx, connectivity.Ready) || p.cmd.hasExited()
}

// crashError describes the end of a process that was lost, which may take a moment to be seen.
func (p *process) crashError(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), crashTimeout)
	defer cancel()
	select {
	case <-p.cmd.exited:
		return fmt.Errorf("%w: %s", ErrCrashed, p.cmd.exitReason())
	case <-ctx.Done():
		return fmt.Errorf("%w: connection lost: %s", ErrCrashed, clipText(status.Convert(err).Message()))
	}
}

// endProcess terminates the process, kills it when it does not end, and returns when it and everything
// else in its process group is gone.
func (p *process) endProcess() {
	timer := p.spec.clock.NewTimer(p.spec.limits.Stop)
	defer timer.Stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		p.client.Kill()
	}()
	select {
	case <-over:
	case <-timer.C():
	}
	p.cmd.killProcess()
	p.closeConnection() // a child that got away may hold the other end and never answer
	<-over
	_ = os.RemoveAll(p.sockets) // what stays is empty
}
