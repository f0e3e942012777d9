package up

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// flushLimit is how long the last spans of a service may take to be delivered.
const flushLimit = 2 * time.Second

// serviceKind is one of the services.
type serviceKind struct {
	name  string
	ports service.Ports
	// runner: --runners applies.
	runner bool
	// bind adds the flags of the service's own binary beyond those that all services share.
	bind func(*pflag.FlagSet)
	// build makes an instance.
	build func(ctx context.Context, base service.Base) (service.Runner, error)
}

// serviceMember is one service of this process.
type serviceMember struct {
	// label names the member: the service's name, numbered from the second on.
	label       string
	httpAddress string
	base        service.Base
	run         func(context.Context) error
}

// close gives back the ports of a member; where its service ran, it did so already.
func (m serviceMember) close() {
	for _, listener := range []net.Listener{m.base.GRPCListener, m.base.HTTPListener} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

func closeMembers(members []serviceMember) {
	for _, m := range members {
		m.close()
	}
}

// sharedParts is what all members of one run have in common.
type sharedParts struct {
	dir     *dataDir
	natsURL string // secret
	token   string // of the run; what callers present
}

// planMembers decides who runs where: the first of each kind on its own ports unless free ones are asked
// for, further ones on free ports. Free ports are taken at once; closeMembers gives them back.
func planMembers(cfg Config, s sharedParts, kinds []serviceKind) (members []serviceMember, err error) {
	defer func() {
		if err != nil {
			closeMembers(members)
		}
	}()
	for _, k := range kinds {
		instances := []string{service.NewInstance(k.name)}
		for k.runner && len(instances) < cfg.Runners {
			instances = append(instances, service.NewInstance(k.name))
		}
		for n, instance := range instances {
			m, err := newMember(cfg, k, n, service.Base{Name: k.name, Instance: instance, Token: s.token}, s)
			members = append(members, m)
			if err != nil {
				return members, fmt.Errorf("%s: %w", m.label, err)
			}
		}
	}
	return members, nil
}

// newMember is the n-th instance of a kind.
func newMember(cfg Config, k serviceKind, n int, base service.Base, s sharedParts) (m serviceMember, err error) {
	m = serviceMember{label: k.name, base: base}
	if n > 0 {
		m.label += "-" + strconv.Itoa(n+1)
	}
	o := service.Defaults(k.name, k.ports)
	o.Kubeconfig, o.Namespace, o.PluginDir = cfg.Kubeconfig, cfg.Namespace, cfg.PluginDir
	o.NATSURL, o.WorkDir = s.natsURL, s.dir.workDir(m.label)
	o.LogLevel, o.LogFormat, o.Features = cfg.LogLevel, cfg.LogFormat, cfg.Features
	if n > 0 || cfg.FreePorts {
		if m.base.GRPCListener, o.GRPCAddress, err = listenFree(); err != nil {
			return m, err
		}
		if m.base.HTTPListener, o.HTTPAddress, err = listenFree(); err != nil {
			return m, err
		}
	}
	m.httpAddress, m.base.Options = o.HTTPAddress, o
	m.run = func(ctx context.Context) error { return runMember(ctx, cfg, k, m) }
	return m, o.Validate()
}

// listenFree takes a free port.
func listenFree() (net.Listener, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		return nil, "", fmt.Errorf("find a free port: %w", err)
	}
	return listener, listener.Addr().String(), nil
}

// runMember builds and runs one service with its own logger and spans.
func runMember(ctx context.Context, cfg Config, k serviceKind, m serviceMember) error {
	defer m.close()
	base := m.base
	base.Clock, base.Log = cfg.Clock, cfg.Log.With("service", k.name, "instance", base.Instance)
	tracing, err := telemetry.NewTracing(ctx, k.name, base.Instance, telemetry.Environment{Getenv: cfg.Getenv, Console: cfg.Out})
	if err != nil {
		return err
	}
	base.Tracer, base.Propagator = tracing.Provider, tracing.Propagator
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
		defer cancel()
		if err := tracing.Shutdown(flush); err != nil {
			base.Log.Warn("Failed to deliver the last spans; they are lost", "error", err)
		}
	}()
	runner, err := k.build(ctx, base)
	if err != nil {
		return fmt.Errorf("start %s: %w", m.label, err)
	}
	if err := runner.Run(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return fmt.Errorf("%s stopped by itself", m.label)
	}
	return nil
}
