// Package certtest makes, for tests, certificate authorities and certificates in files.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// Authority signs certificates.
type Authority struct {
	// CAFile has the authority's certificate, as PEM.
	CAFile string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, as PEM files.
type Pair struct {
	CertFile, KeyFile string
}

// New returns an authority with files in a directory of the test.
func New(t *testing.T, name string) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir()}
	a.CAFile = filepath.Join(a.dir, "ca.crt")
	template := a.certificateTemplate(t, name, clock.RealClock{}.Now().Add(time.Hour))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	a.key = key
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	writePEM(t, a.CAFile, "CERTIFICATE", der)
	return a
}

// Issue writes a certificate for names, which are DNS names and IP addresses. It replaces the one
// that was issued for the same file name.
func (a *Authority) Issue(t *testing.T, file string, names ...string) Pair {
	t.Helper()
	return a.IssueUntil(t, file, clock.RealClock{}.Now().Add(time.Hour), names...)
}

// IssueForServers is Issue of a certificate that no client may use.
func (a *Authority) IssueForServers(t *testing.T, file string, names ...string) Pair {
	t.Helper()
	template := a.certificateTemplate(t, file, clock.RealClock{}.Now().Add(time.Hour))
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.signPair(t, file, template, names)
}

// IssueUntil is Issue with the time when the certificate expires.
func (a *Authority) IssueUntil(t *testing.T, file string, end time.Time, names ...string) Pair {
	t.Helper()
	return a.signPair(t, file, a.certificateTemplate(t, file, end), names)
}

func (a *Authority) signPair(t *testing.T, file string, template *x509.Certificate, names []string) Pair {
	t.Helper()
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	pair := Pair{CertFile: filepath.Join(a.dir, file+".crt"), KeyFile: filepath.Join(a.dir, file+".key")}
	writePEM(t, pair.CertFile, "CERTIFICATE", der)
	writePEM(t, pair.KeyFile, "PRIVATE KEY", keyDER)
	return pair
}

// Client is TLS of a client that trusts the authority and presents own, whatever authorities the
// server asks for.
func (a *Authority) Client(t *testing.T, own ...Pair) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	for _, pair := range own {
		cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
		require.NoError(t, err)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return config
}

func (a *Authority) certificateTemplate(t *testing.T, name string, end time.Time) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: clock.RealClock{}.Now().Add(-2 * time.Hour), NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
