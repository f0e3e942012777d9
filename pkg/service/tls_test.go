package service_test

import (
	"os"
	"path/filepath"
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

// TestACertificateIsNeverAskedOfWhoHasAToken: --tls-ca-file was one flag for peers and callers, and
// locked out everyone who had a token and no certificate.
func TestACertificateIsNeverAskedOfWhoHasAToken(t *testing.T) {
	w, servers, callers := newWorld(t), certtest.New(t, "servers"), certtest.New(t, "callers")
	own, caller, stranger := servers.Issue(t, "own", "127.0.0.1"), callers.Issue(t, "caller"), servers.Issue(t, "stranger")
	r := w.newSecureRuntime(t, "queue-scheduler", own, func(b *service.Base) {
		b.Options.TLSClientCAFile, b.Options.TLSCAFile, b.Options.Auth = callers.CAFile, servers.CAFile, service.AuthKubernetes
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

// TestPeersAreCheckedForTheNameOfTheirService: a Pod is called by its IP address, which no
// certificate of a Service names, and was not reached.
func TestPeersAreCheckedForTheNameOfTheirService(t *testing.T) {
	const runnerName = "holdfast-backup-runner.velero.svc"
	w, authority := newWorld(t), certtest.New(t, "cluster")
	runner := w.newSecureRuntime(t, "backup-runner", authority.Issue(t, "runner", runnerName), func(b *service.Base) {
		b.Options.GRPCAdvertiseAddress = "[127.0.0.1]:0" // as the chart writes a Pod's address
	})
	other := w.newSecureRuntime(t, "deletion", authority.Issue(t, "other", "holdfast-deletion.velero.svc"), nil)
	monitor := w.newSecureRuntime(t, "async-operation-monitor", authority.Issue(t, "monitor", "holdfast-async-operation-monitor.velero.svc"), func(b *service.Base) {
		b.Options.TLSCAFile = authority.CAFile
		b.Options.TLSServerNames = map[string]string{"backup-runner": runnerName}
	})
	stopRunner, stopOther := runRuntimeInTest(t, runner), runRuntimeInTest(t, other)
	ask := func(instance, address string) error {
		conn, err := monitor.Dial(instance, address)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err
	}
	instance := service.NewInstance("backup-runner")
	require.NoError(t, ask(instance, runner.AdvertisedAddr()))
	require.ErrorContains(t, ask(instance, other.AdvertisedAddr()), "holdfast-deletion.velero.svc, not "+runnerName, "the certificate of another service")
	_, err := monitor.Dial(service.NewInstance("restore-runner"), runner.AdvertisedAddr())
	require.ErrorContains(t, err, "--tls-server-names", "a service without a name could be any host of the authority")

	strange := certtest.New(t, "cluster")
	require.NoError(t, os.Rename(strange.CAFile, authority.CAFile))
	require.Error(t, ask(instance, runner.AdvertisedAddr()), "renewed authorities are used")
	require.NoError(t, stopRunner())
	require.NoError(t, stopOther())
}

// TestACertificateForServersIsNotPresented: a service that checks certificates of callers refused
// the connection, though none is needed with a token.
func TestACertificateForServersIsNotPresented(t *testing.T) {
	w, authority := newWorld(t), certtest.New(t, "cluster")
	runner := w.newSecureRuntime(t, "backup-runner", authority.Issue(t, "runner", "127.0.0.1"), func(b *service.Base) {
		b.Options.TLSClientCAFile, b.Options.Auth = authority.CAFile, service.AuthKubernetes
	})
	stop := runRuntimeInTest(t, runner)
	own := authority.IssueForServers(t, "monitor", "127.0.0.1")
	require.Equal(t, refused, checkHealth(t, runner.GRPCAddr(), clientCredentials(t, authority, own), ""), "presented, it is refused")
	monitor := w.newSecureRuntime(t, "async-operation-monitor", own, func(b *service.Base) { b.Options.TLSCAFile = authority.CAFile })
	conn, err := monitor.Dial(service.NewInstance("backup-runner"), runner.GRPCAddr())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.NoError(t, stop())
}

// TestAnAuthorityThatCannotBeUsedShowsAtTheStart: it was found when another service was first called.
func TestAnAuthorityThatCannotBeUsedShowsAtTheStart(t *testing.T) {
	own, broken := certtest.New(t, "cluster").Issue(t, "own", "127.0.0.1"), filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(broken, []byte("no certificate"), 0o600))
	for _, file := range []string{broken, broken + ".missing"} {
		base := newWorld(t).newBase(t, "async-operation-monitor")
		base.Options.TLSCertFile, base.Options.TLSKeyFile, base.Options.TLSCAFile = own.CertFile, own.KeyFile, file
		_, err := service.New(t.Context(), base)
		require.ErrorContains(t, err, "--tls-ca-file: ")
	}
}
