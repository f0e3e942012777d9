package service_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/service/certtest"
)

const serving, refused = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_UNKNOWN

// newSecureRuntime is a service of a world with TLS, on 127.0.0.1.
func (w world) newSecureRuntime(t *testing.T, name string, own certtest.Pair, adjust func(*service.Base)) *service.Runtime {
	t.Helper()
	base := w.newBase(t, name)
	base.Options.TLSCertFile, base.Options.TLSKeyFile = own.CertFile, own.KeyFile
	if adjust != nil {
		adjust(&base)
	}
	r, err := service.New(t.Context(), base)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func clientCredentials(t *testing.T, a *certtest.Authority, own ...certtest.Pair) credentials.TransportCredentials {
	t.Helper()
	return credentials.NewTLS(a.Client(t, own...))
}

func TestMutualTLS(t *testing.T) {
	w, servers, callers := newWorld(t), certtest.New(t, "servers"), certtest.New(t, "callers")
	own, caller, stranger := servers.Issue(t, "own", "127.0.0.1"), callers.Issue(t, "caller"), servers.Issue(t, "stranger")
	r := w.newSecureRuntime(t, "queue-scheduler", own, func(b *service.Base) { b.Options.TLSClientCAFile = callers.CAFile })
	stop := runRuntimeInTest(t, r)
	require.Equal(t, serving, checkHealth(t, r.GRPCAddr(), clientCredentials(t, servers, caller), ""))
	require.Equal(t, refused, checkHealth(t, r.GRPCAddr(), clientCredentials(t, servers), ""), "without tokens a certificate is needed")
	require.Equal(t, refused, checkHealth(t, r.GRPCAddr(), clientCredentials(t, servers, stranger), ""))
	require.Equal(t, refused, checkHealth(t, r.GRPCAddr(), insecure.NewCredentials(), ""))
	require.NoError(t, stop())
}

// TestACertificateIsNeverAskedOfWhoHasAToken: else who has a token and no certificate is locked out.
func TestACertificateIsNeverAskedOfWhoHasAToken(t *testing.T) {
	w, servers, callers := newWorld(t), certtest.New(t, "servers"), certtest.New(t, "callers")
	own, caller, stranger := servers.Issue(t, "own", "127.0.0.1"), callers.Issue(t, "caller"), servers.Issue(t, "stranger")
	r := w.newSecureRuntime(t, "queue-scheduler", own, func(b *service.Base) {
		b.Options.TLSClientCAFile, b.Options.Auth = callers.CAFile, service.AuthKubernetes
	})
	stop := runRuntimeInTest(t, r)
	require.Equal(t, serving, checkHealth(t, r.GRPCAddr(), clientCredentials(t, servers, caller), ""))
	require.Equal(t, serving, checkHealth(t, r.GRPCAddr(), clientCredentials(t, servers), ""))
	require.Equal(t, refused, checkHealth(t, r.GRPCAddr(), clientCredentials(t, servers, stranger), ""), "one that is presented has to be valid")
	require.NoError(t, stop())
}

func TestRenewedFilesAreUsed(t *testing.T) {
	w, old, renewed := newWorld(t), certtest.New(t, "old"), certtest.New(t, "renewed")
	own, callers := old.Issue(t, "own", "127.0.0.1"), certtest.New(t, "callers")
	caller := callers.Issue(t, "caller")
	r := w.newSecureRuntime(t, "queue-scheduler", own, func(b *service.Base) { b.Options.TLSClientCAFile = callers.CAFile })
	stop := runRuntimeInTest(t, r)
	require.Equal(t, serving, checkHealth(t, r.GRPCAddr(), clientCredentials(t, old, caller), ""))

	require.NoError(t, os.WriteFile(own.CertFile, []byte("half"), 0o600))
	require.Equal(t, serving, checkHealth(t, r.GRPCAddr(), clientCredentials(t, old, caller), ""), "what was read last goes on")
	movePair(t, renewed.Issue(t, "own", "127.0.0.1"), own)
	require.Equal(t, refused, checkHealth(t, r.GRPCAddr(), clientCredentials(t, old, caller), ""), "the new certificate is in use")
	require.Equal(t, serving, checkHealth(t, r.GRPCAddr(), clientCredentials(t, renewed, caller), ""))

	others := certtest.New(t, "others")
	require.NoError(t, os.Rename(others.CAFile, callers.CAFile))
	require.Equal(t, refused, checkHealth(t, r.GRPCAddr(), clientCredentials(t, renewed, caller), ""), "the authority of callers is another one")
	require.Equal(t, serving, checkHealth(t, r.GRPCAddr(), clientCredentials(t, renewed, others.Issue(t, "caller")), ""))
	require.NoError(t, stop())
}

func movePair(t *testing.T, from, to certtest.Pair) {
	t.Helper()
	require.NoError(t, os.Rename(from.CertFile, to.CertFile))
	require.NoError(t, os.Rename(from.KeyFile, to.KeyFile))
}
