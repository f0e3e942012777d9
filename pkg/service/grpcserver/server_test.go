package grpcserver_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backups answers by the name it is asked about.
type backups struct {
	backupv1.UnimplementedBackupServiceServer
	started chan struct{}
	release chan struct{}
}

func (b *backups) GetProgress(ctx context.Context, req *backupv1.GetProgressRequest) (*backupv1.GetProgressResponse, error) {
	switch req.GetName() {
	case "panics":
		panic("on purpose")
	case "fails":
		return nil, errors.New("the password is swordfish")
	case "missing":
		return nil, errgrpc.ErrNotFound
	case "deadline":
		until, ok := ctx.Deadline()
		if !ok || time.Until(until) > grpcserver.DefaultUnaryTimeout {
			return nil, errgrpc.ErrPrecondition
		}
	case "waits":
		close(b.started)
		select {
		case <-b.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &backupv1.GetProgressResponse{Progress: &backupv1.Progress{Name: req.GetName()}}, nil
}

func (b *backups) WatchProgress(req *backupv1.WatchProgressRequest, stream grpc.ServerStreamingServer[backupv1.WatchProgressResponse]) error {
	switch req.GetName() {
	case "panics":
		panic("on purpose")
	case "waits":
		close(b.started)
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return stream.Send(&backupv1.WatchProgressResponse{Progress: &backupv1.Progress{Name: req.GetName()}})
}

type bed struct {
	server *grpcserver.Server
	conn   *grpc.ClientConn
	client backupv1.BackupServiceClient
	impl   *backups
	log    *bytes.Buffer
	reg    *prometheus.Registry
	spans  *tracetest.InMemoryExporter
	served chan error
}

func startBed(t *testing.T, adjust func(*grpcserver.Config)) *bed {
	t.Helper()
	b := &bed{
		log: &bytes.Buffer{}, reg: prometheus.NewRegistry(), spans: tracetest.NewInMemoryExporter(), served: make(chan error, 1),
		impl: &backups{started: make(chan struct{}), release: make(chan struct{})},
	}
	cfg := grpcserver.Config{
		Log: slog.New(slog.NewTextHandler(b.log, nil)), Registerer: b.reg,
		Tracer: trace.NewTracerProvider(trace.WithSyncer(b.spans)), Propagator: propagation.TraceContext{},
	}
	if adjust != nil {
		adjust(&cfg)
	}
	var err error
	b.server, err = grpcserver.New(cfg)
	require.NoError(t, err)
	backupv1.RegisterBackupServiceServer(b.server, b.impl)
	lis := bufconn.Listen(1 << 16)
	go func() { b.served <- b.server.Serve(lis) }()
	b.conn, err = grpc.NewClient("passthrough:///bed", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	b.client = backupv1.NewBackupServiceClient(b.conn)
	t.Cleanup(func() {
		require.NoError(t, b.conn.Close())
		b.server.Stop(context.WithoutCancel(t.Context()))
		require.NoError(t, <-b.served)
	})
	return b
}

func (b *bed) callProgress(t *testing.T, name string) error {
	t.Helper()
	_, err := b.client.GetProgress(t.Context(), &backupv1.GetProgressRequest{Name: name})
	return err
}

func TestErrorsBecomeStatuses(t *testing.T) {
	b := startBed(t, nil)
	require.NoError(t, b.callProgress(t, "fine"))
	require.NoError(t, b.callProgress(t, "deadline"), "a call without a deadline gets one")
	require.ErrorIs(t, errgrpc.FromStatus(b.callProgress(t, "missing")), errgrpc.ErrNotFound)

	err := b.callProgress(t, "fails")
	require.Equal(t, codes.Internal, status.Code(err))
	require.NotContains(t, err.Error(), "swordfish")
	require.Contains(t, b.log.String(), "swordfish", "what callers do not see is logged")
}

func TestPanicsAreErrors(t *testing.T) {
	b := startBed(t, nil)
	require.Equal(t, codes.Internal, status.Code(b.callProgress(t, "panics")))
	require.Contains(t, b.log.String(), "on purpose")
	require.Contains(t, b.log.String(), "server_test.go", "the stack is logged")

	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "panics"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Internal, status.Code(err))
	require.NoError(t, b.callProgress(t, "fine"), "the server lives on")
	require.Equal(t, 2, testutil.CollectAndCount(b.reg, "holdfast_grpc_server_handling_seconds"), "failed calls are counted")
}

// The names are those of go-grpc-middleware behind our prefix; dashboards know them.
func TestCallsAreCountedAndProbesAreNot(t *testing.T) {
	b := startBed(t, nil)
	require.NoError(t, b.callProgress(t, "fine"))
	require.Error(t, b.callProgress(t, "missing"))
	_, err := healthpb.NewHealthClient(b.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.NoError(t, testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP holdfast_grpc_server_handled_total Total number of RPCs completed on the server, regardless of success or failure.
# TYPE holdfast_grpc_server_handled_total counter
holdfast_grpc_server_handled_total{grpc_code="NotFound",grpc_method="GetProgress",grpc_service="holdfast.backup.v1.BackupService",grpc_type="unary"} 1
holdfast_grpc_server_handled_total{grpc_code="OK",grpc_method="GetProgress",grpc_service="holdfast.backup.v1.BackupService",grpc_type="unary"} 1
`), "holdfast_grpc_server_handled_total"))
}

func TestInvalidRequestsNameTheField(t *testing.T) {
	b := startBed(t, nil)
	check := func(err error) {
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, errgrpc.FromStatus(err), &field)
		require.Equal(t, "name", field.Field)
	}
	check(b.callProgress(t, ""))
	check(b.callProgress(t, "../secrets"))
	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "UPPER"})
	require.NoError(t, err)
	_, err = stream.Recv()
	check(err)
}

// Messages are read before their caller is known.
func TestMessagesAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		size int
		want codes.Code
	}{
		"the largest": {grpcserver.MaxMessage - 100, codes.OK},
		"too large":   {grpcserver.MaxMessage + 1, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBed(t, nil)
			message := &backupv1.GetProgressRequest{Name: "fine"}
			message.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, tt.size)))
			_, err := b.client.GetProgress(t.Context(), message)
			require.Equal(t, tt.want, status.Code(err), "%v", err)
		})
	}
}

func TestAuthorizerDecides(t *testing.T) {
	b := startBed(t, func(cfg *grpcserver.Config) {
		cfg.Authorize = func(_ context.Context, method string) (string, error) {
			if method == backupv1.BackupService_WatchProgress_FullMethodName {
				return "", nil
			}
			return "", errgrpc.ErrUnauthenticated
		}
	})
	require.Equal(t, codes.Unauthenticated, status.Code(b.callProgress(t, "fine")))
	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "fine"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	_, err = healthpb.NewHealthClient(b.conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err, "probes have no token")
}

func (b *bed) checkHealth(t *testing.T, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	resp, err := healthpb.NewHealthClient(b.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	require.NoError(t, err)
	return resp.GetStatus()
}

func TestHealth(t *testing.T) {
	b := startBed(t, nil)
	name := backupv1.BackupService_ServiceDesc.ServiceName
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, b.checkHealth(t, ""), "the process answers")
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, b.checkHealth(t, name))
	b.server.SetServing(true)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, b.checkHealth(t, name))
	b.server.Drain()
	b.server.SetServing(true)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, b.checkHealth(t, name), "draining is for good")
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, b.checkHealth(t, ""))
	require.NoError(t, b.callProgress(t, "fine"), "calls are still answered while draining")
}

func TestReflectionListsServices(t *testing.T) {
	b := startBed(t, nil)
	stream, err := reflectionpb.NewServerReflectionClient(b.conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}))
	resp, err := stream.Recv()
	require.NoError(t, err)
	require.NoError(t, stream.CloseSend())
	var names []string
	for _, s := range resp.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	require.Contains(t, names, "holdfast.backup.v1.BackupService")
	require.Contains(t, names, "grpc.health.v1.Health")
}

func TestSpansPerCall(t *testing.T) {
	b := startBed(t, nil)
	require.NoError(t, b.callProgress(t, "fine"))
	b.checkHealth(t, "")
	require.Eventually(t, func() bool { return len(b.spans.GetSpans()) == 1 }, time.Minute, time.Millisecond, "health checks make none")
	require.Equal(t, "holdfast.backup.v1.BackupService/GetProgress", b.spans.GetSpans()[0].Name)
}

func TestStopLetsOpenCallsFinish(t *testing.T) {
	b := startBed(t, nil)
	result := make(chan error)
	go func() { result <- b.callProgress(t, "waits") }()
	<-b.impl.started
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.server.Stop(t.Context()) }()
	require.Eventually(t, func() bool { return status.Code(b.callProgress(t, "fine")) == codes.Unavailable }, time.Minute, time.Millisecond)
	close(b.impl.release)
	require.NoError(t, <-result)
	<-stopped
}

func TestStopCutsCallsOffAtTheLimit(t *testing.T) {
	b := startBed(t, nil)
	result := make(chan error)
	go func() { result <- b.callProgress(t, "waits") }()
	<-b.impl.started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.server.Stop(ctx)
	require.Error(t, <-result)
}

func TestStopEndsStreams(t *testing.T) {
	b := startBed(t, nil)
	stream, err := b.client.WatchProgress(t.Context(), &backupv1.WatchProgressRequest{Name: "waits"})
	require.NoError(t, err)
	<-b.impl.started
	b.server.Stop(t.Context())
	_, err = stream.Recv()
	require.ErrorIs(t, errgrpc.FromStatus(err), errgrpc.ErrUnavailable)
	require.ErrorContains(t, err, "stopping", "told, not cut off")
}
