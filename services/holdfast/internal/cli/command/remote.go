package command

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// Where `holdfast up` and a port-forward have services.
const (
	QueueAddress      = "127.0.0.1:7441" // queue-scheduler
	BackupsAddress    = "127.0.0.1:7442" // backup-runner
	RestoresAddress   = "127.0.0.1:7443" // restore-runner
	OperationsAddress = "127.0.0.1:7444" // async-operation-monitor
	ManifestAddress   = "127.0.0.1:7445" // manifest-indexer
	VolumesAddress    = "127.0.0.1:7447" // volume-mover
)

// RemoteOptions say where a service is and how to talk to it.
type RemoteOptions struct {
	// Address is host:port.
	Address string
	// CAFile verifies the service; with it or CertFile TLS is used.
	CAFile string
	// CertFile and KeyFile are the certificate presented to the service; both or neither.
	CertFile, KeyFile string
	// TokenFile holds the Kubernetes token to present.
	TokenFile string
	// DataDir is the data directory of the `holdfast up` to call; empty means $HOLDFAST_DATA_DIR,
	// else what up noted for the address.
	DataDir string

	what, about, service string
	addressFlag          string // where it is not named after what
}

// RemoteQueue returns the options of queue-scheduler's address.
func RemoteQueue() RemoteOptions {
	return RemoteOptions{Address: QueueAddress, what: "queue", about: "the queue", service: "queue-scheduler"}
}

// RemoteRestores returns the options of restore-runner's address.
func RemoteRestores() RemoteOptions {
	return RemoteOptions{Address: RestoresAddress, what: "restore", about: "running and planned restores", service: "restore-runner"}
}

// RemoteOperations returns the options of async-operation-monitor's address.
func RemoteOperations() RemoteOptions {
	return RemoteOptions{Address: OperationsAddress, what: "operations", about: "operations", service: "async-operation-monitor"}
}

// RemoteManifests returns the options of manifest-indexer's address.
func RemoteManifests() RemoteOptions {
	return RemoteOptions{Address: ManifestAddress, what: "manifest", about: "what is in backups", service: "manifest-indexer"}
}

// RemoteVolumes returns the options of volume-mover's address.
func RemoteVolumes() RemoteOptions {
	return RemoteOptions{Address: VolumesAddress, what: "volume", about: "files of volumes", service: "volume-mover"}
}

// RemoteServices returns the options of all services, without an address: At gives those of one.
func RemoteServices() RemoteOptions {
	return RemoteOptions{what: "services", about: "everything", service: "the service"}
}

// At returns the options of one service at an address, host:port.
func (o RemoteOptions) At(service, address string) *RemoteOptions {
	o.service, o.Address = service, address
	return &o
}

// Beside is At for an address that has a flag of its own.
func (o RemoteOptions) Beside(flag, service, address string) *RemoteOptions {
	beside := o.At(service, address)
	beside.addressFlag = flag
	return beside
}

// BindFlags adds the flags.
func (o *RemoteOptions) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, o.flagName("address"), o.Address, "host:port of the service that knows "+o.about+"; in a cluster, forward the port first")
	o.BindCredentials(fs)
}

// BindCredentials adds the flags but that of the address.
func (o *RemoteOptions) BindCredentials(fs *pflag.FlagSet) {
	fs.StringVar(&o.CAFile, o.flagName("ca-file"), o.CAFile, "PEM certificates the service is checked against; TLS is used when given")
	fs.StringVar(&o.CertFile, o.flagName("cert-file"), o.CertFile, "PEM certificate to present to the service; TLS is used when given")
	fs.StringVar(&o.KeyFile, o.flagName("key-file"), o.KeyFile, "PEM key of the certificate")
	fs.StringVar(&o.TokenFile, o.flagName("token-file"), o.TokenFile, "file with the token to present to the service")
	fs.StringVar(&o.DataDir, "data-dir", o.DataDir, "data directory of the server on this machine (holdfast up), whose token is presented; $HOLDFAST_DATA_DIR, else found by the address")
}

func (o *RemoteOptions) flagName(name string) string {
	if name == "address" && o.addressFlag != "" {
		return o.addressFlag
	}
	return o.what + "-" + name
}

// Connect returns a connection, which dials when it is first used. Errors name the flag. The caller
// closes the connection.
func (o *RemoteOptions) Connect(g *Global) (*grpc.ClientConn, error) {
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", o.flagName("address"), err)
	}
	transport, secure, err := o.transportCredentials()
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); !secure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("--%s: %s is not this machine: give --%s to use TLS", o.flagName("address"), host, o.flagName("ca-file"))
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(transport), grpc.WithUserAgent("holdfast/" + telemetry.Version())}
	token, err := o.bearerToken(g, secure)
	if err != nil {
		return nil, err
	}
	if token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearerCredentials{token, secure}))
	}
	conn, err := grpc.NewClient(o.Address, append(opts, g.Dial...)...)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", o.flagName("address"), err)
	}
	return conn, nil
}

// transportCredentials also returns whether it is TLS.
func (o *RemoteOptions) transportCredentials() (credentials.TransportCredentials, bool, error) {
	if o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" {
		return insecure.NewCredentials(), false, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, false, fmt.Errorf("--%s: %w", o.flagName("ca-file"), err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, false, fmt.Errorf("--%s: no certificate in %s", o.flagName("ca-file"), o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, false, fmt.Errorf("--%s, --%s: %w", o.flagName("cert-file"), o.flagName("key-file"), err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return credentials.NewTLS(config), true, nil
}

// Explain makes the error of a call one for people: what the service said, or how to reach it.
func (o *RemoteOptions) Explain(err error) error {
	err = errgrpc.FromStatus(err)
	if errors.Is(err, errgrpc.ErrUnavailable) && errgrpc.Reason(err) == "" {
		return fmt.Errorf("%w; no answer from %s: is `holdfast up` running there, or the port of %s forwarded? --%s says where it is", err, o.Address, o.service, o.flagName("address"))
	}
	if errors.Is(err, errgrpc.ErrUnauthenticated) {
		return fmt.Errorf("%w; --data-dir names the data directory of the `holdfast up` that listens on %s, --%s a file with a token", err, o.Address, o.flagName("token-file"))
	}
	return err
}
