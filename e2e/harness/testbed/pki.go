package testbed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// certAuthority is the certificate authority of one cluster: it signs the API server's certificate and
// every client's.
type certAuthority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	pem    []byte
	serial atomic.Int64
}

// certPair is a certificate and its private key, PEM-encoded.
type certPair struct{ cert, key []byte }

func newAuthority() (*certAuthority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the authority's key: %w", err)
	}
	a := &certAuthority{key: key}
	template := a.certificateTemplate(pkix.Name{CommonName: "holdfast-testbed"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parse the authority's certificate: %w", err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, nil
}

func (a *certAuthority) certificateTemplate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial.Add(1)),
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(7 * 24 * time.Hour),
	}
}

// serverCertificate issues the API server's certificate for an address, loopback, and the names pods use.
func (a *certAuthority) serverCertificate(address string) (certPair, error) {
	template := a.certificateTemplate(pkix.Name{CommonName: "kube-apiserver"})
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), net.ParseIP(address)}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.issueCertificate(template)
}

// clientCertificate issues a client certificate; Kubernetes reads the user from the common name and the groups
// from the organizations.
func (a *certAuthority) clientCertificate(user string, groups ...string) (certPair, error) {
	template := a.certificateTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issueCertificate(template)
}

func (a *certAuthority) issueCertificate(template *x509.Certificate) (certPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certPair{}, fmt.Errorf("generate a key: %w", err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return certPair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return certPair{}, err
	}
	return certPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: encoded}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writeFiles writes the files the API server, under an address, and the controller manager are
// started with.
func (a *certAuthority) writeFiles(dir, address string) error {
	server, err := a.serverCertificate(address)
	if err != nil {
		return err
	}
	kubelet, err := a.clientCertificate("kube-apiserver", "system:masters")
	if err != nil {
		return err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate the service account key: %w", err)
	}
	accountKey, err := encodeKey(accounts)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"ca.crt": a.pem, "server.crt": server.cert, "server.key": server.key, "accounts.key": accountKey,
		"kubelet-client.crt": kubelet.cert, "kubelet-client.key": kubelet.key,
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
