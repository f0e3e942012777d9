package messaging_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/service/certtest"
)

// newSecuredServer is a real server with TLS that asks for a user, and, with callers, for a certificate.
func newSecuredServer(t *testing.T, own certtest.Pair, callers *certtest.Authority) *server.Server {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	require.NoError(t, err)
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if callers != nil {
		pem, err := os.ReadFile(callers.CAFile)
		require.NoError(t, err)
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		require.True(t, config.ClientCAs.AppendCertsFromPEM(pem))
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, DisableJetStreamBanner: true,
		Username: "holdfast", Password: "right", TLS: true, TLSVerify: callers != nil, TLSConfig: config, TLSTimeout: 5,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	require.True(t, s.ReadyForConnections(patience))
	return s
}

func TestNATSWithTLSAndCredentials(t *testing.T) {
	servers, callers := certtest.New(t, "servers"), certtest.New(t, "callers")
	own, caller := servers.Issue(t, "nats", "127.0.0.1"), callers.Issue(t, "caller")
	s := newSecuredServer(t, own, callers)
	right := messaging.Config{
		URL: strings.Replace(s.ClientURL(), "://", "://holdfast:right@", 1), CAFile: servers.CAFile, CertFile: caller.CertFile, KeyFile: caller.KeyFile,
		Name: t.Name(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	}
	client, err := messaging.Connect(t.Context(), right)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.Eventually(t, client.Connected, patience, tick)
	require.NoError(t, client.EnsureStreams(t.Context()))
	require.NoError(t, client.Publish(t.Context(), messaging.WorkBackupRun, newHint("u1")))

	for name, options := range map[string][]nats.Option{
		"no credentials":      {nats.RootCAs(servers.CAFile), nats.ClientCert(caller.CertFile, caller.KeyFile)},
		"wrong password":      {nats.UserInfo("holdfast", "wrong"), nats.RootCAs(servers.CAFile), nats.ClientCert(caller.CertFile, caller.KeyFile)},
		"no certificate":      {nats.UserInfo("holdfast", "right"), nats.RootCAs(servers.CAFile)},
		"of another issuer":   {nats.UserInfo("holdfast", "right"), nats.RootCAs(servers.CAFile), nats.ClientCert(own.CertFile, own.KeyFile)},
		"server of no issuer": {nats.UserInfo("holdfast", "right"), nats.RootCAs(callers.CAFile), nats.ClientCert(caller.CertFile, caller.KeyFile)},
	} {
		conn, err := nats.Connect(s.ClientURL(), append(options, nats.Timeout(5*time.Second))...)
		if err == nil {
			conn.Close()
		}
		require.Error(t, err, name)
	}
}

// TestARenewedAuthorityOfNATSIsUsed: files are read for every connection, not once.
func TestARenewedAuthorityOfNATSIsUsed(t *testing.T) {
	first, second := certtest.New(t, "servers"), certtest.New(t, "servers")
	s := newSecuredServer(t, second.Issue(t, "nats", "127.0.0.1"), nil)
	client, err := messaging.Connect(t.Context(), messaging.Config{
		URL: strings.Replace(s.ClientURL(), "://", "://holdfast:right@", 1), CAFile: first.CAFile, Name: t.Name(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.False(t, client.Connected())
	require.NoError(t, os.Rename(second.CAFile, first.CAFile))
	require.Eventually(t, client.Connected, patience, tick)
}

func TestFilesOfNATSThatAreNotThere(t *testing.T) {
	for _, cfg := range []messaging.Config{{CAFile: "/absent/ca.crt"}, {CertFile: "/absent/tls.crt", KeyFile: "/absent/tls.key"}} {
		cfg.URL, cfg.Log, cfg.Clock = "nats://127.0.0.1:1", slog.New(slog.DiscardHandler), clock.RealClock{}
		_, err := messaging.Connect(t.Context(), cfg)
		require.ErrorContains(t, err, "/absent/")
	}
}
