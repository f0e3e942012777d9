package up

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/service/caller"
	"github.com/holdfast-io/holdfast/pkg/service/private"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// newKubeconfig leads to an empty API server.
func newKubeconfig(t *testing.T) string {
	t.Helper()
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := strings.ReplaceAll(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: SERVER}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, "SERVER", api.URL)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// realKind is a service with every part that all services share, and no method.
func realKind() serviceKind {
	return serviceKind{name: "queue-scheduler", ports: service.Ports{GRPC: 7441, HTTP: 8441}, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
		r, err := service.New(ctx, base)
		if err != nil {
			return nil, err
		}
		queuev1.RegisterQueueServiceServer(r.GRPC(), queuev1.UnimplementedQueueServiceServer{})
		return r, nil
	}}
}

// TestUpServesItsOwnerOnly: every local user may call 127.0.0.1, and could read a Secret with
// GetUnmaskedItem or have a backup deleted.
func TestUpServesItsOwnerOnly(t *testing.T) {
	cfg := testConfig(t, &screen{})
	cfg.Kubeconfig, cfg.Home = newKubeconfig(t), t.TempDir()
	dir, err := openDataDir(cfg.DataDir)
	require.NoError(t, err)
	defer func() { require.NoError(t, dir.close()) }()
	token, err := caller.CreateToken(dir.path)
	require.NoError(t, err)
	bus, err := embednats.Start(embednats.Config{Dir: dir.natsDir(), Token: "for-nats"})
	require.NoError(t, err)
	defer bus.Stop()
	members, err := planMembers(cfg, sharedParts{dir: dir, natsURL: bus.URL(), token: token}, []serviceKind{realKind()})
	require.NoError(t, err)
	forget := noteMembers(cfg, dir, members)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- members[0].run(ctx) }()

	address := members[0].base.Options.GRPCAddress
	ask := func(g *command.Global, dataDir string) error {
		o := command.RemoteQueue()
		o.Address, o.DataDir = address, dataDir
		conn, err := o.Connect(g)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = queuev1.NewQueueServiceClient(conn).ListQueue(t.Context(), &queuev1.ListQueueRequest{})
		return err
	}
	served := func(err error) bool { return status.Code(err) == codes.Unimplemented } // the service has no method
	require.Eventually(t, func() bool { return served(ask(&command.Global{}, cfg.DataDir)) }, time.Minute, 5*time.Millisecond)
	require.True(t, served(ask(&command.Global{Home: cfg.Home}, "")), "found by the address")
	require.True(t, served(ask(&command.Global{Getenv: func(string) string { return cfg.DataDir }}, "")))
	require.Equal(t, codes.Unauthenticated, status.Code(ask(&command.Global{}, "")), "somebody who knows no token")
	require.Equal(t, codes.Unauthenticated, status.Code(ask(&command.Global{Home: t.TempDir()}, "")))
	other := t.TempDir()
	_, err = caller.CreateToken(other)
	require.NoError(t, err)
	require.Equal(t, codes.Unauthenticated, status.Code(ask(&command.Global{}, other)), "the token of another run")

	at := strings.Replace(bus.URL(), "for-nats@", "", 1)
	_, err = nats.Connect(at)
	require.ErrorIs(t, err, nats.ErrAuthorization)
	conn, err := nats.Connect(bus.URL())
	require.NoError(t, err)
	conn.Close()

	cancel()
	require.NoError(t, <-result)
	forget()
	noted, err := command.DataDir(cfg.Home, address)
	require.NoError(t, err)
	require.Empty(t, noted)
}

// TestADataDirectoryOfEveryoneIsRefused: it holds a bucket, and with it every Secret of the
// cluster.
func TestADataDirectoryOfEveryoneIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(path, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(path, 1, -1))
	} else {
		require.NoError(t, os.Chmod(path, 0o777)) //nolint:gosec // that is the point
	}
	_, err := openDataDir(path)
	require.ErrorIs(t, err, private.ErrNotOurs)
	require.ErrorContains(t, err, "--data-dir")
}
