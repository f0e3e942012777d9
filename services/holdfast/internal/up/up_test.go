package up

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// screen is where people read.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) screenText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func testConfig(t *testing.T, out *screen) Config {
	t.Helper()
	return Config{
		Namespace: "velero", DataDir: t.TempDir(), Runners: 2, FreePorts: true, LogLevel: "info", LogFormat: "text",
		Log: slog.New(slog.DiscardHandler), Out: out, Clock: clock.RealClock{}, Getenv: func(string) string { return "" },
	}
}

func newCluster(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
}

func TestOneServerPerDataDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	first, err := openDataDir(path)
	require.NoError(t, err)
	_, err = openDataDir(path)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "--data-dir")
	require.NoError(t, first.close())
	second, err := openDataDir(path)
	require.NoError(t, err)
	require.NoError(t, second.close())

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = openDataDir(file)
	require.ErrorContains(t, err, "--data-dir")
}

func newDeployment(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero", Labels: map[string]string{"component": "velero"}},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: replicas},
	}
}

func TestRefusesALiveVelero(t *testing.T) {
	require.ErrorIs(t, refuseVelero(t.Context(), newCluster(newDeployment(1)), "velero"), ErrVelero)
	require.NoError(t, refuseVelero(t.Context(), newCluster(newDeployment(0)), "velero"))
	require.NoError(t, refuseVelero(t.Context(), newCluster(newDeployment(1)), "other"))
	require.NoError(t, refuseVelero(t.Context(), newCluster(), "velero"))
}

func TestSetUpCreatesWhatIsMissing(t *testing.T) {
	c := newCluster()
	require.NoError(t, ensureNamespace(t.Context(), c, "velero"))
	require.NoError(t, ensureNamespace(t.Context(), c, "velero"))
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Name: "velero"}, &corev1.Namespace{}))

	cfg := testConfig(t, &screen{})
	dir, err := openDataDir(cfg.DataDir)
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.close()) }()
	require.NoError(t, ensureLocation(t.Context(), c, cfg, dir))
	location := &velerov1.BackupStorageLocation{}
	key := types.NamespacedName{Namespace: "velero", Name: "default"}
	require.NoError(t, c.Get(t.Context(), key, location))
	require.Equal(t, "holdfast.io/file", location.Spec.Provider)
	require.Equal(t, map[string]string{"path": filepath.Join(cfg.DataDir, "objects")}, location.Spec.Config)
	require.Equal(t, "backups", location.Spec.ObjectStorage.Bucket)
	require.DirExists(t, filepath.Join(cfg.DataDir, "objects", "backups"))

	other := newCluster(&velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "theirs"}})
	require.NoError(t, ensureLocation(t.Context(), other, cfg, dir))
	require.Error(t, other.Get(t.Context(), key, location), "their location stays the only one")
}

// standIn is a service that only answers /readyz, when it may.
type standIn struct {
	listener net.Listener
	ready    *atomic.Bool
	end      <-chan error
	stopped  *atomic.Int32
}

// Run serves.
func (s *standIn) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(s.listener) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.end:
	}
	s.stopped.Add(1)
	return errors.Join(err, server.Close(), ignoreClosed(<-done))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

type stage struct {
	ready   atomic.Bool
	stopped atomic.Int32
	end     chan error
}

func (s *stage) stageKinds() []serviceKind {
	build := func(_ context.Context, base service.Base) (service.Runner, error) {
		return &standIn{listener: base.HTTPListener, ready: &s.ready, end: s.end, stopped: &s.stopped}, nil
	}
	return []serviceKind{
		{name: "queue-scheduler", ports: service.Ports{GRPC: 7441, HTTP: 8441}, build: build},
		{name: "backup-runner", ports: service.Ports{GRPC: 7442, HTTP: 8442}, runner: true, build: build},
	}
}

func startUp(t *testing.T, cfg Config, s *stage, c client.Client) (stop func(), result <-chan error) {
	t.Helper()
	return startKinds(t, cfg, s.stageKinds(), c)
}

func startKinds(t *testing.T, cfg Config, kinds []serviceKind, c client.Client) (stop func(), result <-chan error) {
	t.Helper()
	dir, err := openDataDir(cfg.DataDir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dir.close()) })
	members, err := planMembers(cfg, sharedParts{dir: dir, natsURL: "nats://127.0.0.1:1", token: "t"}, kinds)
	require.NoError(t, err)
	require.Len(t, members, 3)
	require.Equal(t, "backup-runner-2", members[2].label)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- serveMembers(ctx, cfg, members, c) }()
	return cancel, done
}

func TestReadyOnceAllServicesAndTheLocationAre(t *testing.T) {
	out := &screen{}
	location := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "default"},
		Spec:       velerov1.BackupStorageLocationSpec{Default: true},
		Status:     velerov1.BackupStorageLocationStatus{Phase: velerov1.LocationPhaseUnavailable, Message: "no bucket"},
	}
	c := newCluster(location)
	s := &stage{end: make(chan error)}
	cfg := testConfig(t, out)
	stop, result := startUp(t, cfg, s, c)
	require.Empty(t, out.screenText())
	s.ready.Store(true)
	require.Equal(t, []string{"storage location default no bucket"}, locationsWaitedFor(t.Context(), "velero", c))
	location.Status.Phase = velerov1.LocationPhaseAvailable
	require.NoError(t, c.Update(t.Context(), location))
	require.Eventually(t, func() bool { return out.screenText() == ReadyLine+"\n" }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-result)
	require.EqualValues(t, 3, s.stopped.Load(), "every service stopped in order")
}

// Spans of OTEL_TRACES_EXPORTER=console are lines of the same output as ReadyLine, from several
// services at once.
func TestSpansOfUpGoToItsOutput(t *testing.T) {
	out := &screen{}
	cfg := testConfig(t, out)
	cfg.Getenv = func(name string) string { return map[string]string{"OTEL_TRACES_EXPORTER": "console"}[name] }
	s := &stage{end: make(chan error)}
	s.ready.Store(true)
	kinds := s.stageKinds()
	for i, k := range kinds {
		kinds[i].build = func(ctx context.Context, base service.Base) (service.Runner, error) {
			_, span := base.Tracer.Tracer("test").Start(ctx, "built")
			span.End()
			return k.build(ctx, base)
		}
	}
	stop, result := startKinds(t, cfg, kinds, newCluster())
	require.Eventually(t, func() bool { return strings.Contains(out.screenText(), ReadyLine+"\n") }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-result)
	var spans, ready int
	for line := range strings.Lines(out.screenText()) {
		if line == ReadyLine+"\n" {
			ready++
			continue
		}
		var span struct{ Name string }
		require.NoError(t, json.Unmarshal([]byte(line), &span), line)
		require.Equal(t, "built", span.Name)
		spans++
	}
	require.Equal(t, 3, spans, "one of each service")
	require.Equal(t, 1, ready)
}

func TestOneFailureStopsAll(t *testing.T) {
	for name, failure := range map[string]error{"an error": errors.New("disk is full"), "a silent end": nil} {
		t.Run(name, func(t *testing.T) {
			s := &stage{end: make(chan error)}
			s.ready.Store(true)
			out := &screen{}
			_, result := startUp(t, testConfig(t, out), s, newCluster())
			require.Eventually(t, func() bool { return out.screenText() != "" }, time.Minute, 10*time.Millisecond)
			s.end <- failure
			err := <-result
			require.Error(t, err)
			if failure != nil {
				require.ErrorIs(t, err, failure)
			}
			require.EqualValues(t, 3, s.stopped.Load())
		})
	}
}

func TestOwnPortsUnlessFreeOnesAreAskedFor(t *testing.T) {
	cfg := testConfig(t, &screen{})
	cfg.FreePorts = false
	dir, err := openDataDir(cfg.DataDir)
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.close()) }()
	members, err := planMembers(cfg, sharedParts{dir: dir, natsURL: "nats://127.0.0.1:1", token: "t"}, (&stage{}).stageKinds())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:8441", members[0].httpAddress)
	require.Equal(t, "127.0.0.1:8442", members[1].httpAddress)
	require.NotEqual(t, "127.0.0.1:8442", members[2].httpAddress)
	_, err = net.Listen("tcp", members[2].httpAddress)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "a free port is held, nobody can take it before its service starts")
	closeMembers(members)
}
