package service

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
)

// serverTLS is how protocols are served, nil for in the clear; clients is what --tls-client-ca-file
// asks of callers. Files are read once now, so that a mistake shows at the start, and again for
// every handshake, so that renewed certificates are used without a restart. Files that cannot be
// used then are logged, and what was read last stays in use.
func serverTLS(o Options, clients tls.ClientAuthType, log *slog.Logger, protocols ...string) (*tls.Config, error) {
	if o.TLSCertFile == "" {
		return nil, nil //nolint:nilnil // no TLS asked for is a normal answer, and grpc takes nil for it
	}
	load := func() (*tls.Config, error) {
		cert, err := loadCertificate(o)
		if err != nil {
			return nil, err
		}
		cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*cert}, NextProtos: protocols}
		if o.TLSClientCAFile != "" && clients != tls.NoClientCert {
			if cfg.ClientCAs, err = loadCAs("--tls-client-ca-file", o.TLSClientCAFile); err != nil {
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
	var last atomic.Pointer[tls.Config]
	last.Store(first)
	served := first.Clone()
	served.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := load()
		if err != nil {
			log.Warn("Failed to load renewed TLS files; using the former ones", "error", err)
			return last.Load(), nil
		}
		last.Store(now)
		return now, nil
	}
	return served, nil
}

// callerCertificates is what callers have to present where --tls-client-ca-file is given:
// where a token is needed no certificate is, and one that is presented has to be valid.
func (b Base) callerCertificates() tls.ClientAuthType {
	if b.Token == "" && b.Options.Auth == AuthNone {
		return tls.RequireAndVerifyClientCert
	}
	return tls.VerifyClientCertIfGiven
}

func loadCertificate(o Options) (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(o.TLSCertFile, o.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
	}
	return &cert, nil
}

func loadCAs(flag, path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in %s", flag, path)
	}
	return pool, nil
}
