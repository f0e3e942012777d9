package up

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// flushLimit is how long the last spans of a service may take to be delivered.
const flushLimit = 2 * time.Second

// kind is one of the six services.
type kind struct {
	name  string
	ports service.Ports
	// runner says that --runners applies.
	runner bool
	// build makes an instance; gone are earlier instances known to have ended.
	build func(ctx context.Context, base service.Base, gone []string) (service.Runner, error)
}

// member is one service of this process.
type member struct {
	// label names the member: the service's name, numbered from the second on.
	label       string
	httpAddress string
	run         func(context.Context) error
}

// plan decides who runs where: the first of each kind on its own ports unless
// free ones are asked for, further ones on free ports.
func plan(cfg Config, dir *dataDir, natsURL string, kinds []kind) ([]member, error) {
	var members []member
	for _, k := range kinds {
		instances := []string{service.NewInstance(k.name)}
		for k.runner && len(instances) < cfg.Runners {
			instances = append(instances, service.NewInstance(k.name))
		}
		gone, err := dir.succeed(k.name, instances)
		if err != nil {
			return nil, err
		}
		for n, instance := range instances {
			label := k.name
			if n > 0 {
				label += "-" + strconv.Itoa(n+1)
			}
			options, err := optionsFor(cfg, k, natsURL, dir.work(label), n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", label, err)
			}
			members = append(members, member{label: label, httpAddress: options.HTTPAddress, run: func(ctx context.Context) error {
				return runMember(ctx, cfg, k, label, service.Base{Name: k.name, Instance: instance, Options: options}, gone)
			}})
		}
	}
	return members, nil
}

func optionsFor(cfg Config, k kind, natsURL, workDir string, n int) (service.Options, error) {
	options := service.Defaults(k.name, k.ports)
	options.Kubeconfig, options.Namespace, options.PluginDir = cfg.Kubeconfig, cfg.Namespace, cfg.PluginDir
	options.NATSURL, options.WorkDir = natsURL, workDir
	options.LogLevel, options.LogFormat = cfg.LogLevel, cfg.LogFormat
	if n > 0 || cfg.FreePorts {
		var err error
		if options.GRPCAddress, err = freeAddress(); err != nil {
			return options, err
		}
		if options.HTTPAddress, err = freeAddress(); err != nil {
			return options, err
		}
	}
	return options, options.Validate()
}

// freeAddress finds a port nobody listens on at the moment.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback, and closed at once
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// runMember builds and runs one service with its own logger and spans.
func runMember(ctx context.Context, cfg Config, k kind, label string, base service.Base, gone []string) error {
	base.Clock, base.Log = cfg.Clock, cfg.Log.With("service", k.name, "instance", base.Instance)
	tracing, err := telemetry.NewTracing(ctx, k.name, base.Instance, cfg.Getenv)
	if err != nil {
		return err
	}
	base.Tracer = tracing.Provider
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
		defer cancel()
		if err := tracing.Shutdown(flush); err != nil {
			base.Log.Warn("last spans not delivered", "error", err)
		}
	}()
	runner, err := k.build(ctx, base, gone)
	if err != nil {
		return fmt.Errorf("start %s: %w", label, err)
	}
	if err := runner.Run(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return fmt.Errorf("%s stopped by itself", label)
	}
	return nil
}
