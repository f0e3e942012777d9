// Package clitest runs command lines against a fake cluster, for the tests of the commands.
package clitest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// Cluster is a fake cluster with a server that answers download requests from Files, by
// "<kind>/<name>". A missing file is answered with a URL that is 404.
type Cluster struct {
	client.WithWatch
	Files map[string][]byte
	URL   string
	// Env are the environment variables.
	Env map[string]string
	// Live makes a terminal of the output.
	Live bool
	// Clock is the commands' clock; the real one unless it is set.
	Clock clock.WithTicker

	listener *bufconn.Listener // of the service; nil when there is none
}

// New returns a fake cluster that holds the objects.
func New(t *testing.T, objects ...client.Object) *Cluster {
	t.Helper()
	c := &Cluster{Files: map[string][]byte{}, Clock: clock.RealClock{}}
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := c.Files[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, err := w.Write(content)
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(store.Close)
	c.URL = store.URL
	base := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build()
	c.WithWatch = interceptor.NewClient(base, interceptor.Funcs{Create: c.createObject})
	return c
}

// InterruptOnce returns a context that ends, as by a user's interrupt, once the list has an entry.
func (c *Cluster) InterruptOnce(t *testing.T, list client.ObjectList) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		ticker := clock.RealClock{}.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil && (c.List(ctx, list) != nil || meta.LenList(list) == 0) {
			<-ticker.C()
		}
	}()
	return ctx
}

// createObject answers download requests as the server would, only at once.
func (c *Cluster) createObject(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	if request, ok := obj.(*velerov1.DownloadRequest); ok {
		request.Status.Phase = velerov1.DownloadRequestPhaseProcessed
		request.Status.DownloadURL = c.URL + "/" + string(request.Spec.Target.Kind) + "/" + request.Spec.Target.Name + "?signature=secret"
	}
	return w.Create(ctx, obj, opts...)
}

// Serve answers RPCs to queue-scheduler until stop is called or the test is over.
func (c *Cluster) Serve(t *testing.T, queue queuev1.QueueServiceServer) (stop func()) {
	t.Helper()
	return c.startServer(t, func(s *grpc.Server) { queuev1.RegisterQueueServiceServer(s, queue) })
}

// ServeOperations is Serve for async-operation-monitor.
func (c *Cluster) ServeOperations(t *testing.T, monitor operationv1.OperationMonitorServiceServer) (stop func()) {
	t.Helper()
	return c.startServer(t, func(s *grpc.Server) { operationv1.RegisterOperationMonitorServiceServer(s, monitor) })
}

// ServeManifests is Serve for manifest-indexer.
func (c *Cluster) ServeManifests(t *testing.T, manifests manifestv1.ManifestServiceServer) (stop func()) {
	t.Helper()
	return c.startServer(t, func(s *grpc.Server) { manifestv1.RegisterManifestServiceServer(s, manifests) })
}

// ServeVolumes is Serve for volume-mover, and for manifest-indexer, which completion asks.
func (c *Cluster) ServeVolumes(t *testing.T, volumes volumev1.VolumeServiceServer, manifests manifestv1.ManifestServiceServer) (stop func()) {
	t.Helper()
	return c.startServer(t, func(s *grpc.Server) {
		volumev1.RegisterVolumeServiceServer(s, volumes)
		manifestv1.RegisterManifestServiceServer(s, manifests)
	})
}

// ServeRestores is Serve for restore-runner.
func (c *Cluster) ServeRestores(t *testing.T, restores restorev1.RestoreServiceServer) (stop func()) {
	t.Helper()
	return c.startServer(t, func(s *grpc.Server) { restorev1.RegisterRestoreServiceServer(s, restores) })
}

// ServeBackups is Serve for queue-scheduler and backup-runner.
func (c *Cluster) ServeBackups(t *testing.T, queue queuev1.QueueServiceServer, backups backupv1.BackupServiceServer) (stop func()) {
	t.Helper()
	return c.startServer(t, func(s *grpc.Server) {
		queuev1.RegisterQueueServiceServer(s, queue)
		backupv1.RegisterBackupServiceServer(s, backups)
	})
}

func (c *Cluster) startServer(t *testing.T, register func(*grpc.Server)) (stop func()) {
	t.Helper()
	c.listener = bufconn.Listen(1 << 16)
	s := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			resp, err := h(ctx, req)
			return resp, toStatus(err)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return toStatus(h(srv, ss))
		}))
	register(s)
	go func() { _ = s.Serve(c.listener) }()
	t.Cleanup(s.Stop)
	return s.Stop
}

func toStatus(err error) error {
	st, _ := errgrpc.Status(err)
	return st.Err()
}

var errRefused = errors.New("connection refused")

func (c *Cluster) dialServer(ctx context.Context, _ string) (net.Conn, error) {
	if c.listener == nil {
		return nil, errRefused
	}
	return c.listener.DialContext(ctx)
}

// Zip compresses a file's content.
func Zip(t *testing.T, content string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// Result is what a command line left behind.
type Result struct {
	Code     int
	Out, Err string
}

// Run runs a command line; in is what a person types.
func (c *Cluster) Run(ctx context.Context, in string, args ...string) Result {
	var out, errs lockedBuffer
	g := &command.Global{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: &errs},
		Live:      c.Live,
		Dial:      []grpc.DialOption{grpc.WithContextDialer(c.dialServer)},
		Clock:     c.Clock,
		Getenv:    func(name string) string { return c.Env[name] },
		Connect:   func(*command.Global) (client.Client, error) { return c, nil },
	}
	code := cli.Execute(ctx, g, cli.NewCommand(g), args)
	return Result{Code: code, Out: out.String(), Err: errs.String()}
}

// lockedBuffer is a buffer for writers in several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String returns what was written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
