package service_test

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func defaultOptions() service.Options {
	return service.Defaults("queue-scheduler", service.Ports{GRPC: 7441, HTTP: 8441})
}

func TestDefaultsAreValid(t *testing.T) {
	o := defaultOptions()
	require.NoError(t, o.Validate())
	require.Equal(t, "127.0.0.1:7441", o.GRPCAddress)
	require.Equal(t, "127.0.0.1:8441", o.HTTPAddress)
}

func TestValidateNamesTheFlag(t *testing.T) {
	for name, tc := range map[string]struct {
		flag   string
		change func(*service.Options)
	}{
		"namespace":            {"--namespace", func(o *service.Options) { o.Namespace = "Velero" }},
		"no nats":              {"--nats-url", func(o *service.Options) { o.NATSURL = "" }},
		"a bad password":       {"--nats-url", func(o *service.Options) { o.NATSURL = "nats://u:p%zz@host" }},
		"no copies":            {"--nats-stream-replicas", func(o *service.Options) { o.NATSStreamReplicas = 0 }},
		"no work dir":          {"--work-dir", func(o *service.Options) { o.WorkDir = "" }},
		"level":                {"--log-level", func(o *service.Options) { o.LogLevel = "loud" }},
		"format":               {"--log-format", func(o *service.Options) { o.LogFormat = "xml" }},
		"feature":              {"--features", func(o *service.Options) { o.Features = []string{"EnableCSI", "EnableMagic"} }},
		"grpc address":         {"--grpc-address", func(o *service.Options) { o.GRPCAddress = "127.0.0.1" }},
		"grpc port":            {"--grpc-address", func(o *service.Options) { o.GRPCAddress = "127.0.0.1:70000" }},
		"http address":         {"--http-address", func(o *service.Options) { o.HTTPAddress = "::1" }},
		"open to all":          {"--auth", func(o *service.Options) { o.GRPCAddress = "0.0.0.0:7441" }},
		"open to all, no host": {"--auth", func(o *service.Options) { o.GRPCAddress = ":7441" }},
		"open to a name":       {"--auth", func(o *service.Options) { o.GRPCAddress = "node1:7441" }},
		"tokens in the clear":  {"--auth", func(o *service.Options) { o.Auth, o.GRPCAddress = service.AuthKubernetes, ":7441" }},
		"auth unknown":         {"--auth", func(o *service.Options) { o.Auth = "basic" }},
		"cert without key":     {"--tls-cert-file", func(o *service.Options) { o.TLSCertFile = "x" }},
		"ca without cert":      {"--tls-ca-file", func(o *service.Options) { o.TLSCAFile = "x" }},
		"callers without cert": {"--tls-client-ca-file", func(o *service.Options) { o.TLSClientCAFile = "x" }},
		"names without cert":   {"--tls-server-names", func(o *service.Options) { o.TLSServerNames = map[string]string{"a": "b"} }},
		"empty server name": {"--tls-server-names", func(o *service.Options) {
			o.TLSCertFile, o.TLSKeyFile, o.TLSServerNames = "x", "y", map[string]string{"a": ""}
		}},
		"nats cert without key": {"--nats-cert-file", func(o *service.Options) { o.NATSCertFile = "x" }},
		"audience of no token":  {"--auth-audience", func(o *service.Options) { o.AuthAudience = "x" }},
		"token for no service":  {"--auth-token-file", func(o *service.Options) { o.AuthTokenFile = "x" }},
	} {
		t.Run(name, func(t *testing.T) {
			o := defaultOptions()
			tc.change(&o)
			field := new(errgrpc.FieldError)
			require.ErrorAs(t, o.Validate(), &field)
			require.Equal(t, tc.flag, field.Field)
		})
	}
}

func TestLoopbackNeedsNoAuth(t *testing.T) {
	for _, address := range []string{"localhost:1", "[::1]:1", "127.8.9.1:0"} {
		o := defaultOptions()
		o.GRPCAddress = address
		require.NoError(t, o.Validate(), address)
	}
}

func TestKubernetesAuthNeedsTLSOutsideLoopback(t *testing.T) {
	o := defaultOptions()
	o.Auth = service.AuthKubernetes
	require.NoError(t, o.Validate())
	o.GRPCAddress, o.TLSCertFile, o.TLSKeyFile = ":7441", "tls.crt", "tls.key"
	require.NoError(t, o.Validate())
}

func parseTestFlags(t *testing.T, args ...string) (*service.Options, *pflag.FlagSet) {
	t.Helper()
	o := defaultOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.BindFlags(fs)
	require.NoError(t, fs.Parse(args))
	return &o, fs
}

func TestEnvironmentStandsForFlags(t *testing.T) {
	o, fs := parseTestFlags(t, "--log-level=debug")
	require.NoError(t, service.ApplyEnv(fs, []string{
		"HOLDFAST_LOG_LEVEL=error", "HOLDFAST_LOG_FORMAT=json", "HOLDFAST_FEATURES=a,b", "PATH=/bin", "HOLDFASTER=1",
		"HOLDFAST_NATS_URL=nats://user:pass=word@host:1",
	}))
	require.Equal(t, "debug", o.LogLevel, "the command line wins")
	require.Equal(t, "json", o.LogFormat)
	require.Equal(t, []string{"a", "b"}, o.Features)
	require.Equal(t, "nats://user:pass=word@host:1", o.NATSURL)
}

func TestUnknownVariablesAreErrors(t *testing.T) {
	_, fs := parseTestFlags(t)
	err := service.ApplyEnv(fs, []string{"HOLDFAST_LOGLEVEL=debug", "HOLDFAST_ZZZ="})
	require.ErrorContains(t, err, "HOLDFAST_LOGLEVEL: unknown variable")
	require.ErrorContains(t, err, "HOLDFAST_ZZZ: unknown variable")
}

func TestServiceLinksAreNotOurs(t *testing.T) {
	_, fs := parseTestFlags(t)
	links := []string{
		"HOLDFAST_NATS_SERVICE_HOST=10.0.0.1", "HOLDFAST_NATS_SERVICE_PORT=4222", "HOLDFAST_NATS_SERVICE_PORT_CLIENT=4222",
		"HOLDFAST_NATS_PORT=tcp://10.0.0.1:4222", "HOLDFAST_NATS_PORT_4222_TCP=tcp://10.0.0.1:4222", "HOLDFAST_NATS_PORT_4222_TCP_ADDR=10.0.0.1",
	}
	require.NoError(t, service.ApplyEnv(fs, links))
	_, fs = parseTestFlags(t)
	require.ErrorContains(t, service.ApplyEnv(fs, append(links, "HOLDFAST_NATS_URI=x")), "HOLDFAST_NATS_URI")
	_, fs = parseTestFlags(t)
	require.ErrorContains(t, service.ApplyEnv(fs, []string{"HOLDFAST_X_PORT=1"}), "HOLDFAST_X_PORT", "no such Service")
}

// TestEnableCSIIsAccepted: installations made for Velero set it, and every service refused to
// start.
func TestEnableCSIIsAccepted(t *testing.T) {
	o := service.Defaults("x", service.Ports{GRPC: 1, HTTP: 2})
	o.Features = []string{service.FeatureCSI}
	require.NoError(t, o.Validate())
	o.Features = []string{"EnableAPIGroupVersions"}
	require.ErrorContains(t, o.Validate(), `--features: unknown feature "EnableAPIGroupVersions"`)
}
