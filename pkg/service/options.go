package service

import (
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
)

// Values of Options.Auth.
const (
	// AuthNone lets every caller in. It is only accepted on a loopback address.
	AuthNone = "none"
	// AuthKubernetes has the API server authenticate the bearer of a token and authorize the call, see
	// caller.Reviewer.
	AuthKubernetes = "kubernetes"
)

// FeatureCSI is Velero's feature of CSI snapshots: backups take them of volumes of CSI drivers, and
// native snapshots leave such volumes out. It is passed on to plugins.
const FeatureCSI = "EnableCSI"

// Options are the settings all services share. Each is a flag and a HOLDFAST_* variable of the same
// name.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file; empty means KUBECONFIG, then the in-cluster
	// account.
	Kubeconfig string
	// Namespace is the server namespace: where backups, restores, locations and the ledger live.
	Namespace string
	// NATSURL is one or more NATS URLs, separated by commas. It may hold a password: never log it.
	NATSURL string
	// NATSCredsFile is the path of a NATS credentials file (JWT and seed); empty means none.
	NATSCredsFile string
	// NATSCAFile is a PEM file that NATS servers are checked against; empty means the authorities of
	// the machine. With it NATS is used over TLS with any scheme of the URL.
	NATSCAFile string
	// NATSCertFile and NATSKeyFile are the PEM files of the certificate presented to NATS servers;
	// both or neither.
	NATSCertFile string
	// NATSKeyFile belongs to NATSCertFile.
	NATSKeyFile string
	// NATSStreamReplicas is how many copies streams have on NATS that this service creates; existing
	// ones keep theirs.
	NATSStreamReplicas int
	// PluginDir holds plugin binaries; empty means no plugins.
	PluginDir string
	// WorkDir holds what does not fit in memory. It is created when missing.
	WorkDir string
	// GRPCAddress is the host:port that gRPC is served on; port 0 picks a free one.
	GRPCAddress string
	// GRPCAdvertiseAddress is the host:port under which other services reach gRPC; empty means
	// GRPCAddress. Port 0 is the one that is listened on.
	GRPCAdvertiseAddress string
	// HTTPAddress is the host:port that metrics and probes are served on; port 0 picks a free one.
	HTTPAddress string
	// TLSCertFile and TLSKeyFile are the PEM files gRPC and artifacts are served with; both or
	// neither. They are read again at every handshake.
	TLSCertFile string
	// TLSKeyFile belongs to TLSCertFile.
	TLSKeyFile string
	// TLSCAFile is a PEM file that other services are checked against; empty means the authorities
	// of the machine.
	TLSCAFile string
	// TLSClientCAFile is a PEM file. When set, a certificate that a caller presents must be signed by
	// it. With AuthNone callers must present one; otherwise they need a token and may leave it out,
	// since a certificate is no identity of a caller.
	TLSClientCAFile string
	// TLSServerNames are, by service, the names that certificates of other services must have; one
	// that is not there is not called. Empty means the host that is called.
	TLSServerNames map[string]string
	// Auth is AuthNone or AuthKubernetes.
	Auth string
	// AuthAudience is the audience that callers' tokens must be issued for; empty means that of the
	// API server.
	AuthAudience string
	// AuthTokenFile holds the token to present to other services; empty means the one that is
	// presented to the API server.
	AuthTokenFile string
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is text or json.
	LogFormat string
	// Features are names of optional behaviour to turn on.
	Features []string
}

// Ports are a service's default ports.
type Ports struct {
	// GRPC is the default port of --grpc-address.
	GRPC int
	// HTTP is the default port of --http-address.
	HTTP int
}

// Defaults returns the options of a service that was given none: loopback addresses on its ports,
// namespace velero.
func Defaults(name string, ports Ports) Options {
	return Options{
		Namespace:   "velero",
		NATSURL:     "nats://127.0.0.1:4222",
		WorkDir:     filepath.Join(os.TempDir(), "holdfast", name),
		GRPCAddress: loopbackAddress(ports.GRPC),
		HTTPAddress: loopbackAddress(ports.HTTP),
		Auth:        AuthNone,
		LogLevel:    "info",
		LogFormat:   "text",

		NATSStreamReplicas: 1,
	}
}

// BindFlags adds one flag per option to fs, with the present values as defaults.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "path of a kubeconfig file; KUBECONFIG or the in-cluster account when empty")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the backups, restores and locations to serve")
	fs.StringVar(&o.NATSURL, "nats-url", o.NATSURL, "NATS server URLs, separated by commas")
	fs.StringVar(&o.NATSCredsFile, "nats-creds-file", o.NATSCredsFile, "path of a NATS credentials file")
	fs.StringVar(&o.NATSCAFile, "nats-ca-file", o.NATSCAFile, "PEM certificates that NATS servers are checked against")
	fs.StringVar(&o.NATSCertFile, "nats-cert-file", o.NATSCertFile, "PEM certificate to present to NATS servers")
	fs.StringVar(&o.NATSKeyFile, "nats-key-file", o.NATSKeyFile, "PEM key of --nats-cert-file")
	fs.IntVar(&o.NATSStreamReplicas, "nats-stream-replicas", o.NATSStreamReplicas, "copies of the streams that are created on NATS, which needs as many servers: 1 to 5")
	fs.StringVar(&o.PluginDir, "plugin-dir", o.PluginDir, "directory of plugin binaries")
	fs.StringVar(&o.WorkDir, "work-dir", o.WorkDir, "directory for data that does not fit in memory")
	fs.StringVar(&o.GRPCAddress, "grpc-address", o.GRPCAddress, "host:port to serve gRPC on")
	fs.StringVar(&o.GRPCAdvertiseAddress, "grpc-advertise-address", o.GRPCAdvertiseAddress, "host:port under which other services reach gRPC; --grpc-address when empty")
	fs.StringVar(&o.HTTPAddress, "http-address", o.HTTPAddress, "host:port to serve metrics and probes on")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "PEM certificate to serve gRPC and artifacts with")
	fs.StringVar(&o.TLSKeyFile, "tls-key-file", o.TLSKeyFile, "PEM key of --tls-cert-file")
	fs.StringVar(&o.TLSCAFile, "tls-ca-file", o.TLSCAFile, "PEM certificates that other services are checked against")
	fs.StringVar(&o.TLSClientCAFile, "tls-client-ca-file", o.TLSClientCAFile, "PEM certificates that those of callers are checked against; callers with tokens need none")
	fs.StringToStringVar(&o.TLSServerNames, "tls-server-names", o.TLSServerNames, "names that certificates of other services must have, as service=name,...; a service that is not there is not called; empty: the host that is called")
	fs.StringVar(&o.Auth, "auth", o.Auth, "who may call: none (everyone, loopback only) or kubernetes (RBAC decides)")
	fs.StringVar(&o.AuthAudience, "auth-audience", o.AuthAudience, "audience that tokens of callers must be issued for; the API server's when empty")
	fs.StringVar(&o.AuthTokenFile, "auth-token-file", o.AuthTokenFile, "file with the token to present to other services; the one for the API server when empty")
	fs.StringVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "text or json")
	fs.StringSliceVar(&o.Features, "features", o.Features, "optional features to turn on, separated by commas")
}

func loopbackAddress(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
