package operationhome_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

const mover = "x.io/mover"

func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") != "" {
		registry := &plugin.Registry{}
		registry.AsyncBackupItemAction(mover, []string{"pods"}, func(plugin.Env) (plugin.AsyncBackupItemAction, error) {
			return &movingAction{of: map[string]plugin.Progress{}}, nil
		})
		if err := serve.Run(registry); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// movingAction is an action whose operations run in its process until they are cancelled; Progress
// returns which process that is.
type movingAction struct {
	plugin.Everything
	mu sync.Mutex
	of map[string]plugin.Progress
}

func (m *movingAction) Start(_ context.Context, in *plugin.AsyncBackupInput) (*plugin.AsyncBackupOutput, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of[in.IdempotencyKey] = plugin.Progress{State: plugin.Running, Done: 3, Total: 9, Unit: "Bytes", Started: time.Unix(1, 0), Updated: time.Unix(2, 0)}
	return &plugin.AsyncBackupOutput{OperationID: in.IdempotencyKey, InProcess: true}, nil
}

func (m *movingAction) Progress(_ context.Context, op plugin.Operation) (plugin.Progress, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.of[op.ID]
	if !ok {
		return p, plugin.ErrNoOperation
	}
	p.Description = fmt.Sprint(os.Getpid(), " ", op.Job.Name())
	return p, nil
}

func (m *movingAction) Cancel(_ context.Context, op plugin.Operation, grace time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if grace != time.Minute {
		return false, nil
	}
	m.of[op.ID] = plugin.Progress{State: plugin.Cancelled}
	return true, nil
}

func (*movingAction) Logs(ctx context.Context, _ plugin.Operation, o plugin.LogOptions) iter.Seq2[plugin.LogLine, error] {
	return func(yield func(plugin.LogLine, error) bool) {
		if yield(plugin.LogLine{Time: o.Since, Level: "info", Message: "moving", Fields: map[string]string{"a": "b"}}, nil) && o.Follow {
			<-ctx.Done()
		}
	}
}

// bed is an instance with a real plugin, and a client that finds it.
type bed struct {
	*testing.T
	operations *pluginhost.Operations
	server     *operationhome.Server
	client     *operationhome.Client
	action     action.BackupStarter

	mu      sync.Mutex
	address string
	gone    bool
	broken  error
}

// Find implements operationhome.Peers.
func (b *bed) Find(context.Context, string) (string, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.address, b.gone, b.broken
}

func (b *bed) changeState(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func newBed(t *testing.T) *bed {
	t.Helper()
	h, err := pluginhost.New(t.Context(), pluginhost.Config{
		Dir: selfplugin.Directory(t, "mover"), Namespace: "velero", LogLevel: "warn", Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	})
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	b := &bed{T: t, operations: h.Operations(context.WithoutCancel(t.Context()), slog.New(slog.DiscardHandler))}
	t.Cleanup(b.operations.Close)
	session := h.Open(t.Context(), slog.New(slog.DiscardHandler))
	t.Cleanup(session.Close)
	b.action = session.BackupItems()[0].(action.BackupStarter)
	b.server = &operationhome.Server{Instance: "runner-1", Processes: b.operations}
	b.address = b.startServer()
	b.client = operationhome.NewClient(b, func(_, address string) (*grpc.ClientConn, error) {
		return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}, nil)
	t.Cleanup(b.client.Close)
	return b
}

func (b *bed) startServer() string {
	b.Helper()
	g, err := grpcserver.New(grpcserver.Config{
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider(), Propagator: propagation.TraceContext{},
	})
	require.NoError(b, err)
	operationv1.RegisterOperationServiceServer(g, b.server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ended := make(chan error)
	go func() { ended <- g.Serve(listener) }()
	b.Cleanup(func() {
		g.Stop(context.Background())
		require.NoError(b, <-ended)
	})
	return listener.Addr().String()
}

var job = []byte(`{"kind":"Backup","metadata":{"name":"b"}}`)

// beginOperation begins an operation, and returns its process.
func (b *bed) beginOperation(id string) (op action.Operation, process string) {
	b.Helper()
	backup, err := action.NewBackup(&velerov1.Backup{})
	require.NoError(b, err)
	pod := action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"n","name":"p"}}`))
	r, err := b.action.Start(b.Context(), pod, backup, id)
	require.NoError(b, err)
	require.NotEmpty(b, r.Process)
	return action.Operation{Kind: "AsyncBackupItemAction", Action: mover, ID: r.OperationID}, r.Process
}

// killProcess kills the process of an operation and waits until it is gone. It returns the process ID.
func (b *bed) killProcess(op action.Operation, process string) (pid int) {
	b.Helper()
	p, err := b.client.At("runner-1", process).Progress(b.Context(), op, job)
	require.NoError(b, err)
	_, err = fmt.Sscan(p.Description, &pid)
	require.NoError(b, err)
	require.NoError(b, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(b, func() bool { return !b.operations.Alive(process) }, time.Minute, 10*time.Millisecond)
	return pid
}

func TestAnInstanceAnswersForItsProcesses(t *testing.T) {
	b := newBed(t)
	op, process := b.beginOperation("one")
	home := b.client.At("runner-1", process)
	p, err := home.Progress(t.Context(), op, job)
	require.NoError(t, err)
	require.Equal(t, []any{int64(3), int64(9), "Bytes", false}, []any{p.Completed, p.Total, p.Units, p.Done})
	require.Equal(t, time.Unix(1, 0).UTC(), p.Started.UTC())
	require.Contains(t, p.Description, " b", "the action gets the job")

	since := time.Unix(7, 0).UTC()
	ctx, stop := context.WithCancel(t.Context())
	lines := 0
	for line, err := range home.Logs(ctx, op, job, since, true) {
		if lines++; lines == 1 {
			require.NoError(t, err)
			require.Equal(t, action.LogLine{Time: since, Level: "info", Message: "moving", Fields: map[string]string{"a": "b"}}, line)
			stop()
		}
	}
	stop()

	accepted, err := home.Cancel(t.Context(), op, job, time.Second)
	require.NoError(t, err)
	require.False(t, accepted)
	accepted, err = home.Cancel(t.Context(), op, job, time.Minute)
	require.NoError(t, err)
	require.True(t, accepted)
	p, err = home.Progress(t.Context(), op, job)
	require.NoError(t, err)
	require.True(t, p.Done)
	require.NotEmpty(t, p.Err)

	op.ID = "absent"
	_, err = home.Progress(t.Context(), op, job)
	require.ErrorIs(t, err, action.ErrUnknownOperation)
	op.Action = "x.io/other"
	_, err = home.Progress(t.Context(), op, job)
	require.ErrorIs(t, err, action.ErrUnknownAction)
}

// A process is gone when its instance reports that, or when the instance's Lease ends; not when a
// call fails.
func TestOnlyTheEndOfTheProcessIsItsEnd(t *testing.T) {
	b := newBed(t)
	op, process := b.beginOperation("one")
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := b.client.At("runner-1", process).Progress(ctx, op, job)
		return err
	}
	right := b.address
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := listener.Addr().String()
	require.NoError(t, listener.Close())
	for name, change := range map[string]func(){
		"the API server does not answer": func() { b.broken = errors.New("away") },
		"nobody listens":                 func() { b.address = nobody },
		"it does not say where it is":    func() { b.address = "" },
		"another instance listens":       func() { b.server.Instance = "runner-2" },
	} {
		b.changeState(change)
		err := ask()
		require.Error(t, err, name)
		require.NotErrorIs(t, err, operationhome.ErrGone, name)
		require.NotErrorIs(t, err, action.ErrUnknownOperation, name)
		b.changeState(func() { b.address, b.broken, b.server.Instance = right, nil, "runner-1" })
		require.NoError(t, ask(), name)
	}

	b.killProcess(op, process)
	require.Eventually(t, func() bool { return errors.Is(ask(), operationhome.ErrGone) }, time.Minute, 10*time.Millisecond)
	_, other := b.beginOperation("two")
	require.NotEqual(t, process, other)
	require.ErrorIs(t, ask(), operationhome.ErrGone, "although another process of the binary runs")
	b.changeState(func() { b.gone = true })
	err = ask()
	require.ErrorIs(t, err, operationhome.ErrGone)
	require.ErrorContains(t, err, "instance runner-1 has ended")
}

// An instance reaches its own processes without a connection.
func TestAnInstanceReachesItsOwnProcesses(t *testing.T) {
	b := newBed(t)
	op, process := b.beginOperation("one")
	own := operationhome.NewClient(b, nil, b.server)
	defer own.Close()
	accepted, err := own.At("runner-1", process).Cancel(t.Context(), op, job, time.Minute)
	require.NoError(t, err)
	require.True(t, accepted)
	require.NoError(t, own.Forget(t.Context(), "runner-1", process, op))
	require.Zero(t, b.operations.Running())
	b.killProcess(op, process)
	_, err = own.At("runner-1", process).Cancel(t.Context(), op, job, time.Minute)
	require.ErrorIs(t, err, operationhome.ErrGone)
}

// A stopping service waits for the operations in its plugins' processes and keeps its Lease;
// operations that are no longer polled do not keep it.
func TestOperationsKeepTheirInstance(t *testing.T) {
	b := newBed(t)
	one, process := b.beginOperation("one")
	two, _ := b.beginOperation("two")
	stay := &operationhome.Stay{Processes: b.operations, Limit: time.Minute, Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	held, left := make(chan struct{}), make(chan struct{})
	parts.Go(func() { require.NoError(t, stay.Run(ctx)) })
	parts.Go(func() {
		require.NoError(t, stay.Before(func(ctx context.Context) error {
			close(held)
			<-ctx.Done()
			close(left)
			return nil
		})(ctx))
	})
	<-held
	stop()
	home := b.client.At("runner-1", process)
	_, err := home.Cancel(t.Context(), one, job, time.Minute)
	require.NoError(t, err)
	p, err := home.Progress(t.Context(), one, job)
	require.NoError(t, err, "it still answers")
	require.True(t, p.Done)
	select {
	case <-left:
		require.Fail(t, "an operation lives there")
	default:
	}
	require.NoError(t, b.client.Forget(t.Context(), "runner-1", process, two))
	<-left
	parts.Wait()
	require.False(t, b.operations.Alive(process))
}

func TestADrainHasALimit(t *testing.T) {
	b := newBed(t)
	b.beginOperation("one")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	stay := &operationhome.Stay{Processes: b.operations, Limit: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	began := time.Now()
	require.NoError(t, stay.Run(ctx))
	require.Less(t, time.Since(began), 30*time.Second)
}

func TestRequestsAreValidated(t *testing.T) {
	b := newBed(t)
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	api := operationv1.NewOperationServiceClient(conn)
	_, err = api.GetProgress(t.Context(), &operationv1.GetProgressRequest{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "operation: ")
	_, err = api.Forget(t.Context(), &operationv1.ForgetRequest{Operation: &operationv1.InProcessOperation{
		ExpectedInstanceId: "runner-2", ProcessId: "p", Kind: "k", Action: "a", OperationId: "o",
	}})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	require.Equal(t, "OTHER_INSTANCE", errgrpc.Reason(err))
}
