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
	build  func(context.Context, service.Base) (service.Runner, error)
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
		count := 1
		if k.runner {
			count = cfg.Runners
		}
		for n := range count {
			m, err := newMember(cfg, dir, natsURL, k, n)
			if err != nil {
				return nil, err
			}
			members = append(members, m)
		}
	}
	return members, nil
}

func newMember(cfg Config, dir *dataDir, natsURL string, k kind, n int) (member, error) {
	label := k.name
	if n > 0 {
		label += "-" + strconv.Itoa(n+1)
	}
	options := service.Defaults(k.name, k.ports)
	options.Kubeconfig, options.Namespace, options.PluginDir = cfg.Kubeconfig, cfg.Namespace, cfg.PluginDir
	options.NATSURL, options.WorkDir = natsURL, dir.work(label)
	options.LogLevel, options.LogFormat = cfg.LogLevel, cfg.LogFormat
	if n > 0 || cfg.FreePorts {
		var err error
		if options.GRPCAddress, err = freeAddress(); err != nil {
			return member{}, err
		}
		if options.HTTPAddress, err = freeAddress(); err != nil {
			return member{}, err
		}
	}
	if err := options.Validate(); err != nil {
		return member{}, fmt.Errorf("%s: %w", label, err)
	}
	return member{
		label:       label,
		httpAddress: options.HTTPAddress,
		run:         func(ctx context.Context) error { return runMember(ctx, cfg, k, label, options) },
	}, nil
}

// freeAddress finds a port nobody listens on at the moment.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback, and closed at once
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// runMember builds and runs one service with its own instance, logger and spans.
func runMember(ctx context.Context, cfg Config, k kind, label string, options service.Options) (err error) {
	instance := service.NewInstance(k.name)
	log := cfg.Log.With("service", k.name, "instance", instance)
	tracing, err := telemetry.NewTracing(ctx, k.name, instance, cfg.Getenv)
	if err != nil {
		return err
	}
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
		defer cancel()
		if err := tracing.Shutdown(flush); err != nil {
			log.Warn("last spans not delivered", "error", err)
		}
	}()
	runner, err := k.build(ctx, service.Base{
		Name: k.name, Instance: instance, Options: options, Log: log, Clock: cfg.Clock, Tracer: tracing.Provider,
	})
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
