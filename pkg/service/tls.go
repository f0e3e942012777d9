package service

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// serverTLS is how protocols are served, nil for in the clear; clients is what --tls-ca-file asks
// of callers. Files are read once now, so that a mistake shows at the start, and again for every
// handshake, so that renewed certificates are used without a restart.
func serverTLS(o Options, clients tls.ClientAuthType, protocols ...string) (*tls.Config, error) {
	if o.TLSCertFile == "" {
		return nil, nil //nolint:nilnil // no TLS asked for is a normal answer, and grpc takes nil for it
	}
	load := func() (*tls.Config, error) {
		cert, err := tls.LoadX509KeyPair(o.TLSCertFile, o.TLSKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
		}
		cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: protocols}
		if o.TLSCAFile != "" && clients != tls.NoClientCert {
			if cfg.ClientCAs, err = loadCAs(o.TLSCAFile); err != nil {
				return nil, err
			}
			cfg.ClientAuth = clients
		}
		return cfg, nil
	}
	first, err := load()
	if err != nil {
		return nil, err
	}
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return load() }
	return first, nil
}

func loadCAs(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca-file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca-file: no certificate in %s", path)
	}
	return pool, nil
}
