package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// clientTLS is how another service is called, and whether that is TLS. The certificate of the other
// one has to name serverName; empty means the host that is dialled.
func clientTLS(o Options, serverName string) (credentials.TransportCredentials, bool, error) {
	if o.TLSCertFile == "" {
		return insecure.NewCredentials(), false, nil
	}
	r := &renewingCredentials{options: o, serverName: serverName}
	_, err := r.currentCredentials()
	return r, true, err
}

// renewingCredentials is TLS of a client whose files are read again for every handshake. It is safe for
// concurrent use.
type renewingCredentials struct {
	options    Options
	serverName string
}

func (r *renewingCredentials) currentCredentials() (credentials.TransportCredentials, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: r.serverName}
	config.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, err := loadCertificate(r.options)
		if err != nil {
			return nil, err
		}
		// One of another authority than that for clients, or for servers only, would be refused.
		if !forClients(cert.Leaf) || asked.SupportsCertificate(cert) != nil {
			return &tls.Certificate{}, nil
		}
		return cert, nil
	}
	if r.options.TLSCAFile != "" {
		pool, err := loadCAs("--tls-ca-file", r.options.TLSCAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	return credentials.NewTLS(config), nil
}

// forClients reports whether cert may be used by a client: RFC 5280, 4.2.1.12, allows every use to
// one that names none.
func forClients(cert *x509.Certificate) bool {
	if len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *renewingCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	now, err := r.currentCredentials()
	if err != nil {
		return nil, nil, err
	}
	return now.ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials; nothing is served with it.
func (r *renewingCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, credentials.ErrConnDispatched
}

// Info implements credentials.TransportCredentials.
func (r *renewingCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", ServerName: r.serverName} //nolint:staticcheck // the authority of calls is taken from it
}

// Clone implements credentials.TransportCredentials.
func (r *renewingCredentials) Clone() credentials.TransportCredentials {
	return &renewingCredentials{options: r.options, serverName: r.serverName}
}

// OverrideServerName implements credentials.TransportCredentials.
func (r *renewingCredentials) OverrideServerName(name string) error {
	r.serverName = name
	return nil
}
