package command_test

import (
	"context"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/pkg/service/caller"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// whose answers with the authorization it was called with.
type whose struct {
	queuev1.UnimplementedQueueServiceServer
}

func (whose) ListQueue(ctx context.Context, _ *queuev1.ListQueueRequest) (*queuev1.ListQueueResponse, error) {
	resp := &queuev1.ListQueueResponse{}
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		resp.NextPageToken += value
	}
	return resp, nil
}

// startServer listens on loopback and returns the address.
func startServer(t *testing.T, opts ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(opts...)
	queuev1.RegisterQueueServiceServer(s, whose{})
	ended := make(chan error)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-ended)
	})
	return listener.Addr().String()
}

func callRemote(t *testing.T, args ...string) (string, error) {
	t.Helper()
	o := command.RemoteQueue()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.BindFlags(fs)
	require.NoError(t, fs.Parse(args))
	conn, err := o.Connect(&command.Global{})
	require.NoError(t, err)
	defer conn.Close()
	resp, err := queuev1.NewQueueServiceClient(conn).ListQueue(t.Context(), &queuev1.ListQueueRequest{})
	if err != nil {
		return "", o.Explain(err)
	}
	return resp.GetNextPageToken(), nil
}

func writeTempFile(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestConnect(t *testing.T) {
	plain := startServer(t)
	answer, err := callRemote(t, "--queue-address", plain)
	require.NoError(t, err)
	require.Empty(t, answer)
	token := writeTempFile(t, []byte("secret\n"))
	answer, err = callRemote(t, "--queue-address", plain, "--queue-token-file", token)
	require.NoError(t, err)
	require.Equal(t, "Bearer secret", answer, "in the clear on this machine only")
}

func TestConnectWithTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	ca := writeTempFile(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}))
	secure := startServer(t, grpc.Creds(credentials.NewServerTLSFromCert(&web.TLS.Certificates[0])))
	answer, err := callRemote(t, "--queue-address", secure, "--queue-ca-file", ca, "--queue-token-file", writeTempFile(t, []byte("secret")))
	require.NoError(t, err)
	require.Equal(t, "Bearer secret", answer)

	_, err = callRemote(t, "--queue-address", secure)
	require.ErrorContains(t, err, "no answer from")
	_, err = callRemote(t, "--queue-address", startServer(t), "--queue-ca-file", ca)
	require.ErrorContains(t, err, "no answer from", "it does not speak TLS")
}

func TestFilesAreChecked(t *testing.T) {
	o := command.RemoteQueue()
	o.CAFile = writeTempFile(t, []byte("no PEM"))
	_, err := o.Connect(&command.Global{})
	require.ErrorContains(t, err, "--queue-ca-file: no certificate in")
}

// TestTheTokenOfThisMachineStaysOnIt: another user may listen on a port that a name leads to, and
// then holds the token.
func TestTheTokenOfThisMachineStaysOnIt(t *testing.T) {
	dir := t.TempDir()
	_, err := caller.CreateToken(dir)
	require.NoError(t, err)
	o := command.RemoteQueue()
	o.Address, o.DataDir = "localhost:7441", dir
	_, err = o.Connect(&command.Global{})
	require.ErrorContains(t, err, "--data-dir: its token is only for an address such as 127.0.0.1:7441")
	o.Address, o.DataDir = "127.0.0.1:7441", t.TempDir()
	_, err = o.Connect(&command.Global{})
	require.ErrorContains(t, err, "--data-dir: token:")
	_, err = callRemote(t, "--queue-address", startServer(t))
	require.NoError(t, err)
}
