package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
	"github.com/holdfast-io/holdfast/pkg/service"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is what a service needs around it: an empty API server, and a real NATS server.
type world struct {
	kubeconfig, nats, dir string
	api                   *httptest.Server
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{dir: t.TempDir()}
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	w.api = api
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	require.NoError(t, os.WriteFile(w.kubeconfig, []byte(strings.ReplaceAll(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: SERVER}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, "SERVER", api.URL)), 0o600))
	nats, err := embednats.Start(embednats.Config{Dir: filepath.Join(w.dir, "nats")})
	require.NoError(t, err)
	t.Cleanup(nats.Stop)
	w.nats = nats.URL()
	return w
}

func (w world) newBase(t *testing.T, name string) service.Base {
	t.Helper()
	o := service.Defaults(name, service.Ports{})
	o.Kubeconfig, o.NATSURL, o.WorkDir = w.kubeconfig, w.nats, filepath.Join(w.dir, "work", name)
	return service.Base{
		Name: name, Instance: service.NewInstance(name), Options: o,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Clock: clock.RealClock{}, Tracer: noop.NewTracerProvider(),
	}
}

func (w world) newRuntime(t *testing.T, name string) *service.Runtime {
	t.Helper()
	r, err := service.New(t.Context(), w.newBase(t, name))
	require.NoError(t, err)
	t.Cleanup(r.Close)
	queuev1.RegisterQueueServiceServer(r.GRPC(), queuev1.UnimplementedQueueServiceServer{})
	return r
}

// runRuntimeInTest runs r and returns how to stop it.
func runRuntimeInTest(t *testing.T, r *service.Runtime) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	t.Cleanup(cancel)
	return func() error { cancel(); return <-result }
}

func getPath(t *testing.T, r *service.Runtime, path string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + r.HTTPAddr() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func checkHealth(t *testing.T, addr string, creds credentials.TransportCredentials, name string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	defer conn.Close()
	resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
	if err != nil {
		return healthpb.HealthCheckResponse_UNKNOWN
	}
	return resp.GetStatus()
}

const (
	patience  = time.Minute
	queueName = "holdfast.queue.v1.QueueService"
)

func TestServiceServesAndStops(t *testing.T) {
	r := newWorld(t).newRuntime(t, "queue-scheduler")
	var open atomic.Bool
	r.ReadyWhen("door", open.Load)
	stop := runRuntimeInTest(t, r)
	require.Eventually(t, func() bool {
		_, body := getPath(t, r, "/readyz")
		return body == "not ready: door\n"
	}, patience, 5*time.Millisecond, "only our condition is missing")
	code, _ := getPath(t, r, "/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, checkHealth(t, r.GRPCAddr(), insecure.NewCredentials(), queueName))

	open.Store(true)
	require.Eventually(t, func() bool {
		return checkHealth(t, r.GRPCAddr(), insecure.NewCredentials(), queueName) == healthpb.HealthCheckResponse_SERVING
	}, patience, 5*time.Millisecond)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, checkHealth(t, r.GRPCAddr(), insecure.NewCredentials(), "queue-scheduler"), "under the process's name too")
	code, _ = getPath(t, r, "/readyz")
	require.Equal(t, http.StatusOK, code)
	code, body := getPath(t, r, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, `holdfast_build_info{`)

	require.NoError(t, stop())
	_, err := net.Dial("tcp", r.GRPCAddr())
	require.Error(t, err, "the listener is closed")
	require.ErrorIs(t, r.Run(t.Context()), service.ErrRanBefore)
}

func TestShutdownIsOrdered(t *testing.T) {
	r := newWorld(t).newRuntime(t, "queue-scheduler")
	started := make(chan struct{})
	var during int
	var connected bool
	r.Go("runner", func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		// Handing over: not ready any more, still answering, still connected.
		during, _ = getPath(t, r, "/readyz")
		connected = r.Fabric().Connected()
		return nil
	})
	handedOver := make(chan struct{})
	r.Go("slow", func(ctx context.Context) error {
		<-ctx.Done()
		defer close(handedOver)
		return nil
	})
	leaseOutlived := false
	r.GoLast("lease", func(ctx context.Context) error {
		<-ctx.Done()
		select {
		case <-handedOver:
			leaseOutlived = true
		default:
		}
		return nil
	})
	stop := runRuntimeInTest(t, r)
	<-started
	require.Eventually(t, func() bool { code, _ := getPath(t, r, "/readyz"); return code == http.StatusOK }, patience, 5*time.Millisecond)
	require.NoError(t, stop())
	require.Equal(t, http.StatusServiceUnavailable, during)
	require.True(t, connected)
	require.False(t, r.Fabric().Connected())
	require.True(t, leaseOutlived)
}

func TestAFailingLastPartStopsTheService(t *testing.T) {
	r := newWorld(t).newRuntime(t, "queue-scheduler")
	r.GoLast("lease", func(context.Context) error { return errors.New("broken") })
	err := r.Run(t.Context())
	require.ErrorContains(t, err, "queue-scheduler")
	require.ErrorContains(t, err, "lease: broken")
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for want, change := range map[string]func(*service.Base){
		"--grpc-address": func(b *service.Base) { b.Options.GRPCAddress = taken.Addr().String() },
		"--http-address": func(b *service.Base) { b.Options.HTTPAddress = taken.Addr().String() },
		"--work-dir":     func(b *service.Base) { b.Options.WorkDir = filepath.Join(w.kubeconfig, "sub") },
		"--log-level":    func(b *service.Base) { b.Options.LogLevel = "loud" },
		"kubeconfig":     func(b *service.Base) { b.Options.Kubeconfig = filepath.Join(w.dir, "absent") },
		"nats":           func(b *service.Base) { b.Options.NATSCredsFile = filepath.Join(w.dir, "absent") },
		"--tls-key-file": func(b *service.Base) { b.Options.TLSCertFile, b.Options.TLSKeyFile = w.kubeconfig, w.kubeconfig },
		"no log":         func(b *service.Base) { b.Log = nil },
	} {
		t.Run(want, func(t *testing.T) {
			base := w.newBase(t, "queue-scheduler")
			change(&base)
			_, err := service.New(t.Context(), base)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestOutagesDelayReadinessOnly(t *testing.T) {
	w := newWorld(t)
	dir := filepath.Join(w.dir, "late")
	nats, err := embednats.Start(embednats.Config{Dir: dir})
	require.NoError(t, err)
	port := nats.Port()
	base := w.newBase(t, "queue-scheduler")
	base.Options.NATSURL = nats.URL()
	nats.Stop()
	r, err := service.New(t.Context(), base)
	require.NoError(t, err, "a NATS server that is away is no failure")
	stop := runRuntimeInTest(t, r)
	require.Eventually(t, func() bool {
		_, body := getPath(t, r, "/readyz")
		return body == "not ready: nats\n"
	}, patience, 5*time.Millisecond)

	nats, err = embednats.Start(embednats.Config{Dir: dir, Port: port})
	require.NoError(t, err)
	isReady := func() bool { code, _ := getPath(t, r, "/readyz"); return code == http.StatusOK }
	require.Eventually(t, isReady, patience, 5*time.Millisecond)
	nats.Stop()
	require.Eventually(t, func() bool { return !r.Fabric().Connected() }, patience, 5*time.Millisecond)
	require.True(t, isReady(), "a short outage later on does not send callers away")
	require.NoError(t, stop())
}

func TestKubernetesAuthAsksTheAPIServer(t *testing.T) {
	w := newWorld(t)
	base := w.newBase(t, "queue-scheduler")
	base.Options.Auth = service.AuthKubernetes
	r, err := service.New(t.Context(), base)
	require.NoError(t, err)
	queuev1.RegisterQueueServiceServer(r.GRPC(), queuev1.UnimplementedQueueServiceServer{})
	stop := runRuntimeInTest(t, r)
	conn, err := grpc.NewClient(r.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	list := func(ctx context.Context) codes.Code {
		_, err := queuev1.NewQueueServiceClient(conn).ListQueue(ctx, &queuev1.ListQueueRequest{})
		return status.Code(err)
	}
	require.Equal(t, codes.Unauthenticated, list(t.Context()))
	withToken := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer x")
	require.Equal(t, codes.Unavailable, list(withToken), "this API server knows no reviews")
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, checkHealth(t, r.GRPCAddr(), insecure.NewCredentials(), ""), "probes need no token")
	require.NoError(t, stop())
}
