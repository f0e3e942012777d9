package service_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/holdfast-io/holdfast/pkg/service"
)

// issue writes a self-signed certificate for 127.0.0.1 that is also its own CA.
func issue(t *testing.T, certFile, keyFile string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	require.NoError(t, os.WriteFile(certFile, certPEM, 0o600))
	require.NoError(t, os.WriteFile(keyFile, keyPEM, 0o600))
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return cert
}

func client(t *testing.T, caFile string, own ...tls.Certificate) credentials.TransportCredentials {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	return credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: own, MinVersion: tls.VersionTLS12})
}

func TestMutualTLS(t *testing.T) {
	w := newWorld(t)
	cert, key, ca := filepath.Join(w.dir, "tls.crt"), filepath.Join(w.dir, "tls.key"), filepath.Join(w.dir, "ca.crt")
	issue(t, cert, key)
	caller := issue(t, ca, filepath.Join(w.dir, "ca.key"))
	base := w.base(t, "queue-scheduler")
	base.Options.TLSCertFile, base.Options.TLSKeyFile, base.Options.TLSCAFile = cert, key, ca
	r, err := service.New(t.Context(), base)
	require.NoError(t, err)
	stop := running(t, r)

	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health(t, r.GRPCAddr(), client(t, cert, caller), ""))
	require.Equal(t, healthpb.HealthCheckResponse_UNKNOWN, health(t, r.GRPCAddr(), client(t, cert), ""), "no client certificate")
	require.Equal(t, healthpb.HealthCheckResponse_UNKNOWN, health(t, r.GRPCAddr(), insecure.NewCredentials(), ""))

	before := client(t, cert, caller)
	issue(t, cert, key)
	require.Equal(t, healthpb.HealthCheckResponse_UNKNOWN, health(t, r.GRPCAddr(), before, ""), "the new certificate is in use")
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health(t, r.GRPCAddr(), client(t, cert, caller), ""))
	require.NoError(t, stop())
}
