package doctor_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
	sdk "github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/pkg/service/rights"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

// TestMain is a plugin when it is started as one.
func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") == "" {
		os.Exit(m.Run())
	}
	registry := (&sdk.Registry{}).
		BackupItemAction("example.io/a", []string{"*"}, func(sdk.Env) (sdk.BackupItemAction, error) { return nil, os.ErrInvalid }).
		BackupItemAction("example.io/b", []string{"*"}, func(sdk.Env) (sdk.BackupItemAction, error) { return nil, os.ErrInvalid })
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func withNATS(b *bed, url string, replicas int) {
	b.adapt = func(c *doctor.Config) {
		c.NATS = messaging.Config{URL: url, Name: "doctor", Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
		c.StreamReplicas = replicas
	}
}

func TestNATS(t *testing.T) {
	server, err := embednats.Start(embednats.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	b := newBed(t)
	requireFinding(t, doctor.Skipped, b.runCheck("nats"), "no address")
	withNATS(b, server.URL(), 0)
	require.Len(t, findingsWith(doctor.Failed, b.runCheck("nats")), 3, "three streams are missing")

	client, err := messaging.Connect(t.Context(), messaging.Config{URL: server.URL(), Name: "service", Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.Eventually(t, func() bool { return client.EnsureStreams(t.Context()) == nil }, patience, tick)
	requireFine(t, b.runCheck("nats"))
	withNATS(b, server.URL(), 3)
	require.Len(t, findingsWith(doctor.Failed, b.runCheck("nats")), 3, "one copy of each, and three are to be")

	conn, err := nats.Connect(server.URL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), messaging.StreamDead)
	require.NoError(t, err)
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 1 << 20
	_, err = js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	withNATS(b, server.URL(), 1)
	requireFinding(t, doctor.Warning, b.runCheck("nats"), messaging.StreamDead, "max bytes is 1048576")
}

func TestNATSThatCannotBeReached(t *testing.T) {
	b := newBed(t)
	withNATS(b, "nats://user:hidden@"+closedAddress(t), 0)
	found := b.runCheck("nats")
	require.Len(t, findingsWith(doctor.Failed, found), 1)
	require.NotContains(t, fmt.Sprint(found), "hidden")
}

func TestNATSWithoutJetStream(t *testing.T) {
	plain, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	require.NoError(t, err)
	plain.Start()
	t.Cleanup(func() { plain.Shutdown(); plain.WaitForShutdown() })
	require.True(t, plain.ReadyForConnections(patience))
	b := newBed(t)
	withNATS(b, plain.ClientURL(), 0)
	found := b.runCheck("nats")
	requireFinding(t, doctor.Failed, found, "JetStream is not enabled")
	require.Len(t, found, 1)
	require.Contains(t, found[0].Remedy, "turn JetStream on")
}

// closedAddress is an address that nothing listens on.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// startHealthServer is a gRPC server with the health of a service, ready or not.
func startHealthServer(t *testing.T, ready bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server, state := grpc.NewServer(), health.NewServer()
	for _, name := range rights.Services() {
		status := healthpb.HealthCheckResponse_NOT_SERVING
		if ready {
			status = healthpb.HealthCheckResponse_SERVING
		}
		state.SetServingStatus(name, status)
	}
	healthpb.RegisterHealthServer(server, state)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// startMetricsServer is an HTTP server with the metrics of a service of a version.
func startMetricsServer(t *testing.T, version string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, "# HELP x y\nholdfast_build_info{commit=\"c\",version=%q} 1\n", version)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// setAddresses has every service at one address, but for the exceptions.
func setAddresses(b *bed, address, metrics string, except map[string]string) {
	b.adapt = func(c *doctor.Config) {
		c.Services, c.Metrics = map[string]string{}, map[string]string{}
		for _, name := range rights.Services() {
			c.Services[name], c.Metrics[name] = address, metrics
			if other, ok := except[name]; ok {
				c.Services[name] = other
			}
		}
		c.Dial = func(_, address string) (*grpc.ClientConn, error) {
			return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		}
	}
}

func TestServices(t *testing.T) {
	b := newBed(t)
	good, current := startHealthServer(t, true), startMetricsServer(t, "v1")
	setAddresses(b, good, current, nil)
	found := b.runCheck("services")
	requireFine(t, found)
	require.Len(t, found, len(rights.Services()))
	require.True(t, containsWord(findingsWith(doctor.OK, found), "v1"))

	setAddresses(b, good, current, map[string]string{"deletion": startHealthServer(t, false)})
	requireFinding(t, doctor.Failed, b.runCheck("services"), "deletion", "not ready")
	closed := closedAddress(t)
	setAddresses(b, good, current, map[string]string{"deletion": closed})
	requireFinding(t, doctor.Failed, b.runCheck("services"), "deletion", "no answer at "+closed+": connection error") // no code of gRPC
}

func TestServicesOfTheChart(t *testing.T) {
	list := chartDeployments()
	b := newBed(t)
	b.objects = asObjects(list)
	setAddresses(b, startHealthServer(t, true), startMetricsServer(t, "v1"), map[string]string{"deletion": closedAddress(t)})
	found := b.runCheck("services")
	require.Empty(t, findingsWith(doctor.Failed, found))
	requireFinding(t, doctor.Skipped, found, "deletion", "not forwarded", "connection refused")
	adapt := b.adapt
	b.adapt = func(c *doctor.Config) {
		adapt(c)
		c.Named = func(name string) bool { return name == "deletion" }
	}
	requireFinding(t, doctor.Failed, b.runCheck("services"), "deletion", "no answer")

	setAddresses(b, startHealthServer(t, true), startMetricsServer(t, "v1"), nil)
	list[0].Status.ReadyReplicas = 0
	b.objects = asObjects(list)
	requireFinding(t, doctor.Failed, b.runCheck("services"), "queue-scheduler Deployment", "none of 2 Pods is ready")
	list[0].Status.ReadyReplicas = 1
	b.objects = asObjects(list)
	requireFinding(t, doctor.Warning, b.runCheck("services"), "1 of 2 Pods ready")
	list[0].Spec.Replicas = ptr.To[int32](0)
	b.objects = asObjects(list)
	requireFinding(t, doctor.Failed, b.runCheck("services"), "no replicas")
	b.objects = asObjects(list[1:])
	requireFinding(t, doctor.Failed, b.runCheck("services"), "queue-scheduler", "Deployment is missing")
}

// Only a refused connection means that nothing forwards a port.
func TestAServiceThatHangsFailsAloneAndIsNotSkipped(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, objects := range [][]client.Object{nil, asObjects(chartDeployments())} {
		b := newBed(t)
		b.objects = objects
		setAddresses(b, startHealthServer(t, true), startMetricsServer(t, "v1"), map[string]string{"queue-scheduler": silent.Addr().String()})
		adapt := b.adapt
		b.adapt = func(c *doctor.Config) {
			adapt(c)
			c.Timeout = 5 * time.Second // what answers does so by then
		}
		found := b.runCheck("services")
		requireFinding(t, doctor.Failed, found, "queue-scheduler", "no answer", "at "+silent.Addr().String()+": ", "deadline exceeded")
		require.Empty(t, findingsWith(doctor.Skipped, found))
		require.True(t, containsWord(findingsWith(doctor.OK, found), "deletion: ready"))
	}
}

func TestServicesOfTwoVersions(t *testing.T) {
	list := chartDeployments()
	list[2].Labels["app.kubernetes.io/version"] = "v2"
	b := newBed(t)
	b.objects = asObjects(list)
	setAddresses(b, "", "", nil)
	requireFinding(t, doctor.Warning, b.runCheck("services"), "versions", "restore-runner v2")
}

func withPlugins(t *testing.T, b *bed, dir string) {
	t.Helper()
	b.adapt = func(c *doctor.Config) {
		c.Plugins = pluginhost.Config{Dir: dir, Namespace: "velero", LogLevel: "warn", Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
	}
}

func TestPlugins(t *testing.T) {
	b := newBed(t)
	requireFinding(t, doctor.Skipped, b.runCheck("plugins"), "no directory")
	dir := selfplugin.Directory(t, "example")
	withPlugins(t, b, dir)
	found := b.runCheck("plugins")
	requireFine(t, found)
	requireFinding(t, doctor.OK, found, "example", "2 plugins")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken"), []byte("\x7fELF nonsense"), 0o700))
	requireFinding(t, doctor.Failed, b.runCheck("plugins"), "broken")
	withPlugins(t, b, filepath.Join(dir, "absent"))
	requireFinding(t, doctor.Failed, b.runCheck("plugins"), "absent")
	withPlugins(t, b, t.TempDir())
	requireFine(t, b.runCheck("plugins"))
}
