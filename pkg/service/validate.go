package service

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// Validate checks the options; every error names its flag.
func (o *Options) Validate() error {
	var errs []error
	bad := func(flag, format string, args ...any) {
		errs = append(errs, errgrpc.Field("--"+flag, format, args...))
	}
	if msgs := validation.IsDNS1123Label(o.Namespace); len(msgs) > 0 {
		bad("namespace", "%q: %s", o.Namespace, msgs[0])
	}
	if err := messaging.CheckURL(o.NATSURL); err != nil {
		bad("nats-url", "%v", err)
	}
	if o.NATSStreamReplicas < 1 || o.NATSStreamReplicas > 5 {
		bad("nats-stream-replicas", "%d is not 1 to 5", o.NATSStreamReplicas)
	}
	if o.WorkDir == "" {
		bad("work-dir", "must not be empty")
	}
	if _, err := telemetry.ParseLevel(o.LogLevel); err != nil {
		bad("log-level", "%q is not debug, info, warn or error", o.LogLevel)
	}
	if o.LogFormat != telemetry.FormatText && o.LogFormat != telemetry.FormatJSON {
		bad("log-format", "%q is not text or json", o.LogFormat)
	}
	for _, feature := range o.Features {
		if feature != FeatureCSI {
			bad("features", "unknown feature %q: only %s is known", feature, FeatureCSI)
		}
	}
	if err := checkAddress(o.HTTPAddress); err != nil {
		bad("http-address", "%v", err)
	}
	errs = append(errs, o.validateGRPC()...)
	return errors.Join(errs...)
}

func (o *Options) validateGRPC() []error {
	var errs []error
	if err := checkAddress(o.GRPCAddress); err != nil {
		errs = append(errs, errgrpc.Field("--grpc-address", "%v", err))
	}
	if o.GRPCAdvertiseAddress != "" {
		if err := checkAddress(o.GRPCAdvertiseAddress); err != nil {
			errs = append(errs, errgrpc.Field("--grpc-advertise-address", "%v", err))
		}
	}
	switch o.Auth {
	case AuthNone:
		if !isLoopback(o.GRPCAddress) {
			errs = append(errs, errgrpc.Field("--auth", "none is only accepted on a loopback address, and --grpc-address is %q", o.GRPCAddress))
		}
	case AuthKubernetes:
		if o.TLSCertFile == "" && !isLoopback(o.GRPCAddress) {
			errs = append(errs, errgrpc.Field("--auth", "kubernetes sends tokens and needs --tls-cert-file on an address that others reach, and --grpc-address is %q", o.GRPCAddress))
		}
	default:
		errs = append(errs, errgrpc.Field("--auth", "%q is not none or kubernetes", o.Auth))
	}
	return append(errs, o.validateTLS()...)
}

// validateTLS refuses what would have no effect.
func (o *Options) validateTLS() []error {
	var errs []error
	needs := func(flag string, given bool, what string) {
		if given {
			errs = append(errs, errgrpc.Field("--"+flag, "%s", what))
		}
	}
	const certificate = "needs --tls-cert-file and --tls-key-file"
	needs("tls-cert-file", (o.TLSCertFile == "") != (o.TLSKeyFile == ""), "must be given together with --tls-key-file")
	needs("tls-ca-file", o.TLSCAFile != "" && o.TLSCertFile == "", certificate)
	needs("tls-client-ca-file", o.TLSClientCAFile != "" && o.TLSCertFile == "", certificate)
	needs("tls-server-names", len(o.TLSServerNames) > 0 && o.TLSCertFile == "", certificate)
	needs("nats-cert-file", (o.NATSCertFile == "") != (o.NATSKeyFile == ""), "must be given together with --nats-key-file")
	needs("auth-audience", o.AuthAudience != "" && o.Auth != AuthKubernetes, "needs --auth kubernetes")
	needs("auth-token-file", o.AuthTokenFile != "" && o.Auth != AuthKubernetes, "needs --auth kubernetes")
	for service, name := range o.TLSServerNames {
		needs("tls-server-names", service == "" || name == "", "must be service=name,...")
	}
	return errs
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: port must be 0 to 65535", address)
	}
	return nil
}

// isLoopback reports whether only this machine can reach the address. A name other than localhost
// may resolve to anything.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
