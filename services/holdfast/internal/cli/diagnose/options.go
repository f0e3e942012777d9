// Package diagnose holds the commands `holdfast doctor` and `holdfast debug`, and the flags that say how
// to reach what they look at.
package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

// Options are the flags.
type Options struct {
	*command.Global
	Remote   command.RemoteOptions
	Services map[string]string
	Metrics  map[string]string
	Timeout  time.Duration
	NATS     messaging.Config
	Features []string
	Dir      string
	Plugins  pluginhost.Flags

	ports map[string]service.Ports // by service
	// named are the services whose addresses were given.
	named map[string]bool
}

// newOptions returns the options with their defaults; ports are those of the services by name.
func newOptions(g *command.Global, ports map[string]service.Ports) Options {
	return Options{Global: g, Remote: command.RemoteServices(), ports: ports}
}

// BindFlags adds the flags.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "how long each check, and in services and locations each of them, may take")
	fs.StringToStringVar(&o.Services, "services-address", nil, "gRPC addresses of services, as service=host:port,... (default: their ports on 127.0.0.1)")
	fs.StringToStringVar(&o.Metrics, "metrics-address", nil, "HTTP addresses of services, as service=host:port,... (default: their ports on 127.0.0.1)")
	o.Remote.BindCredentials(fs)
	fs.StringVar(&o.NATS.URL, "nats-url", "", "NATS server URLs, separated by commas (default: $"+service.EnvName("nats-url")+"; else NATS is not looked at)")
	fs.StringVar(&o.NATS.CredsFile, "nats-creds-file", "", "path of a NATS credentials file")
	fs.StringVar(&o.NATS.CAFile, "nats-ca-file", "", "PEM certificates that NATS servers are checked against")
	fs.StringVar(&o.NATS.CertFile, "nats-cert-file", "", "PEM certificate to present to NATS servers")
	fs.StringVar(&o.NATS.KeyFile, "nats-key-file", "", "PEM key of --nats-cert-file")
	fs.IntVar(&o.NATS.Replicas, "nats-stream-replicas", 0, "how many copies streams are to have; 0: any number")
	fs.StringVar(&o.Dir, "plugin-dir", "", "directory of plugin binaries (default: $"+service.EnvName("plugin-dir")+")")
	fs.StringSliceVar(&o.Features, "features", nil, "features that the services have, where no Deployment says so")
	o.Plugins.BindFlags(fs)
}

// Config returns what to check with, and what removes its files afterwards. Errors name the flag.
func (o *Options) Config(ctx context.Context) (cfg doctor.Config, done func() error, err error) {
	if err := o.completeOptions(); err != nil {
		return cfg, nil, err
	}
	namespace, err := o.ServerNamespace()
	if err != nil {
		return cfg, nil, err
	}
	config, err := o.Rest()
	if err != nil {
		return cfg, nil, err
	}
	c, err := client.New(config, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		return cfg, nil, fmt.Errorf("connect to the cluster: %w", telemetry.RedactError(err))
	}
	discover, err := discovery.NewDiscoveryClientForConfig(rest.CopyConfig(config))
	if err != nil {
		return cfg, nil, fmt.Errorf("connect to the cluster: %w", telemetry.RedactError(err))
	}
	log := slog.New(slog.NewTextHandler(o.ErrOut, &slog.HandlerOptions{Level: slog.LevelError}))
	plugins := pluginhost.Config{
		Dir: o.Dir, Namespace: namespace, Kubeconfig: o.Kubeconfig, LogLevel: "warn", Environ: os.Environ(), AllowEnv: o.Plugins.Env,
		Features: o.Features, Clock: o.Clock, Limits: o.Plugins.Limits(), Log: log,
	}
	locations, done, err := openLocations(ctx, c, namespace, plugins)
	if err != nil {
		return cfg, nil, err
	}
	nats := o.NATS
	nats.Name, nats.Log, nats.Clock = "holdfast-doctor", log, o.Clock
	return doctor.Config{
		Namespace: namespace, Clock: o.Clock, Client: c, Discovery: discover,
		Missing:   func(ctx context.Context) ([]string, error) { return crds.Missing(ctx, config) },
		Locations: locations, NATS: nats, StreamReplicas: nats.Replicas, Services: o.Services, Metrics: o.Metrics,
		Named: func(name string) bool { return o.named[name] }, Dial: o.Dial, Plugins: plugins, Features: o.Features, Timeout: o.Timeout,
	}, done, nil
}

// Rest returns how to reach the API server.
func (o *Options) Rest() (*rest.Config, error) {
	config, err := kube.ConfigForContext(o.Kubeconfig, o.Context)
	if err != nil {
		return nil, err
	}
	config.Timeout = o.Timeout // of discovery, which takes no context
	return config, nil
}

// Dial returns a connection to a service, which the caller closes.
func (o *Options) Dial(name, address string) (*grpc.ClientConn, error) {
	return o.Remote.At(name, address).Connect(o.Global)
}

// openLocations opens locations with plugins too, where there are some; done removes the credentials
// of these, which lie in a directory that only the user may read.
func openLocations(ctx context.Context, c client.Client, namespace string, plugins pluginhost.Config) (_ *location.Opener, done func() error, err error) {
	if plugins.Dir == "" {
		return location.New(c, namespace), func() error { return nil }, nil
	}
	host, err := pluginhost.New(ctx, plugins)
	if err != nil {
		return nil, nil, fmt.Errorf("--plugin-dir: %w", err)
	}
	work, err := os.MkdirTemp("", "holdfast-doctor-")
	if err != nil {
		return nil, nil, err
	}
	return location.New(c, namespace, location.WithPlugins(host, plugins.Log, work)), func() error { return os.RemoveAll(work) }, nil
}

// completeOptions fills in and checks the flags.
func (o *Options) completeOptions() error {
	o.Dir = cmp.Or(o.Dir, o.Getenv(service.EnvName("plugin-dir")))
	o.NATS.URL = cmp.Or(o.NATS.URL, o.Getenv(service.EnvName("nats-url")))
	if o.Dir != "" {
		dir, err := filepath.Abs(o.Dir)
		if err != nil {
			return fmt.Errorf("--plugin-dir: %w", err)
		}
		o.Dir = dir
	}
	if o.Timeout <= 0 {
		return fmt.Errorf("--timeout: must be more than 0, is %s", o.Timeout)
	}
	if o.NATS.URL != "" {
		if err := messaging.CheckURL(o.NATS.URL); err != nil {
			return fmt.Errorf("--nats-url: %w", err)
		}
	}
	o.named = map[string]bool{}
	for name := range o.Services {
		o.named[name] = true
	}
	var err error
	if o.Services, err = o.completeAddresses("--services-address", o.Services, func(p service.Ports) int { return p.GRPC }); err != nil {
		return err
	}
	if o.Metrics, err = o.completeAddresses("--metrics-address", o.Metrics, func(p service.Ports) int { return p.HTTP }); err != nil {
		return err
	}
	return o.Plugins.Validate()
}

// completeAddresses adds those that were not given.
func (o *Options) completeAddresses(flag string, given map[string]string, port func(service.Ports) int) (map[string]string, error) {
	out := map[string]string{}
	for name, p := range o.ports {
		out[name] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port(p)))
	}
	names := slices.Sorted(maps.Keys(o.ports))
	for name, address := range given {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s: %q is none of the services %v", flag, name, names)
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", flag, name, err)
		}
		out[name] = address
	}
	return out, nil
}
