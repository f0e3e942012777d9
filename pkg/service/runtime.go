package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/service/caller"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// Limits of the shutdown.
const (
	// HandOverLimit is how long parts may take to stop and hand over their work.
	HandOverLimit = 30 * time.Second
	// CallLimit is how long open calls may take to end after that.
	CallLimit = 10 * time.Second
)

// Runtime is a service's running half: its connections, servers and parts.
type Runtime struct {
	base     Base
	config   *rest.Config
	api      *serverReach
	manager  ctrl.Manager
	fabric   *messaging.Client
	registry *prometheus.Registry
	ready    readiness
	parts    *rungroup.Group
	last     *rungroup.Group
	work     *workDir

	grpc    *grpcserver.Server
	grpcLis net.Listener
	mux     *http.ServeMux
	httpLis net.Listener

	endpoints []*endpoint

	closing sync.Once
	running sync.Once
}

// New connects to Kubernetes and NATS and opens the listeners; nothing is served before Run. When
// it fails, everything it opened is closed again. An API server or NATS server that is away is no
// failure.
func New(ctx context.Context, base Base) (*Runtime, error) {
	if err := base.checkBase(); err != nil {
		return nil, fmt.Errorf("service %s: %w", base.Name, err)
	}
	if base.Propagator == nil {
		base.Propagator = telemetry.Propagator()
	}
	r := &Runtime{
		base:     base,
		grpcLis:  base.GRPCListener,
		httpLis:  base.HTTPListener,
		registry: prometheus.NewRegistry(),
		api:      &serverReach{clock: base.Clock, grace: OutageGrace + probeAfter},
		parts:    rungroup.New(rungroup.Config{Grace: HandOverLimit, Clock: base.Clock, Log: base.Log}),
		last:     rungroup.New(rungroup.Config{Grace: HandOverLimit + base.DrainLimit, Clock: base.Clock, Log: base.Log}),
		mux:      http.NewServeMux(),
	}
	for _, step := range []func(context.Context) error{r.prepareLocal, r.connectBackends, r.buildGRPC, r.listenServers} {
		if err := step(ctx); err != nil {
			r.Close()
			return nil, fmt.Errorf("service %s: %w", base.Name, err)
		}
	}
	r.addRoutes()
	return r, nil
}

// prepareLocal makes the work directory, and registers the metric of the build.
func (r *Runtime) prepareLocal(context.Context) (err error) {
	if r.work, err = newWorkDir(r.base.Options.WorkDir, r.base.Name, r.base.Instance); err != nil {
		return fmt.Errorf("--work-dir: %w", err)
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_build_info", Help: "1, with the version and commit of the binary as labels.",
		ConstLabels: prometheus.Labels{"service": r.base.Name, "version": telemetry.Version(), "commit": telemetry.Commit()},
	})
	info.Set(1)
	return r.registry.Register(info)
}

// connectBackends opens the connections to Kubernetes and NATS.
func (r *Runtime) connectBackends(ctx context.Context) error {
	o := r.base.Options
	cfg, err := kube.Config(o.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.UserAgent = "holdfast-" + r.base.Name + "/" + telemetry.Version()
	cfg.Wrap(r.api.Wrap)
	r.config = cfg
	if r.manager, err = kube.NewManager(cfg, o.Namespace, r.base.CacheTransform, r.base.Log); err != nil {
		return err
	}
	r.fabric, err = messaging.Connect(ctx, messaging.Config{
		URL: o.NATSURL, CredsFile: o.NATSCredsFile, CAFile: o.NATSCAFile, CertFile: o.NATSCertFile, KeyFile: o.NATSKeyFile,
		Replicas: o.NATSStreamReplicas, Name: r.base.Instance, Metrics: r.registry,
		Log: r.base.Log, Clock: r.base.Clock, Tracer: r.base.Tracer,
		Installation: Installation(r.manager.GetAPIReader(), o.Namespace),
	})
	return err
}

func (r *Runtime) buildGRPC(context.Context) error {
	tlsConfig, err := serverTLS(r.base.Options, r.base.callerCertificates(), r.base.Log, "h2")
	if err != nil {
		return err
	}
	if _, _, err := clientTLS(r.base.Options, ""); err != nil { // else found at the first Dial
		return err
	}
	authorize, err := r.newAuthorizer()
	if err != nil {
		return err
	}
	r.grpc, err = grpcserver.New(grpcserver.Config{
		Log: r.base.Log, Registerer: r.registry, Tracer: r.base.Tracer, Propagator: r.base.Propagator,
		TLS: tlsConfig, Authorize: authorize, Audited: Audited, Clock: r.base.Clock,
	})
	if err != nil {
		return err
	}
	r.grpc.RegisterHealth(r.base.Name)
	return nil
}

// newAuthorizer is what the token or else --auth requires; nil allows every caller.
func (r *Runtime) newAuthorizer() (grpcserver.Authorizer, error) {
	if r.base.Token != "" {
		return caller.AuthorizeToken(r.base.Token), nil
	}
	if r.base.Options.Auth != AuthKubernetes {
		return nil, nil //nolint:nilnil // no authenticator is a normal answer
	}
	client, err := kubernetes.NewForConfig(r.config)
	if err != nil {
		return nil, fmt.Errorf("--auth kubernetes: %w", err)
	}
	return caller.NewReviewer(caller.ReviewerConfig{Client: client, Clock: r.base.Clock, Audience: r.base.Options.AuthAudience}).Authorize, nil
}

func (r *Runtime) listenServers(ctx context.Context) (err error) {
	var lc net.ListenConfig
	if r.grpcLis == nil {
		if r.grpcLis, err = lc.Listen(ctx, "tcp", r.base.Options.GRPCAddress); err != nil {
			return fmt.Errorf("--grpc-address: %w", err)
		}
	}
	if r.httpLis == nil {
		if r.httpLis, err = lc.Listen(ctx, "tcp", r.base.Options.HTTPAddress); err != nil {
			return fmt.Errorf("--http-address: %w", err)
		}
	}
	return nil
}

// GRPC is where the service registers its gRPC services, before Run. Each gets its own health
// status, beside that of the process's own name.
func (r *Runtime) GRPC() grpc.ServiceRegistrar { return r.grpc }

// Manager is the controller-runtime manager; it is started by Run.
func (r *Runtime) Manager() ctrl.Manager { return r.manager }

// WorkDir is the directory of this process below --work-dir. It is removed at the end of Run, or by
// a later process of the service when this one dies.
func (r *Runtime) WorkDir() string { return r.work.path }

// RestConfig is the connection to the API server. Copy it before changing it.
func (r *Runtime) RestConfig() *rest.Config { return r.config }

// Fabric is the connection to NATS.
func (r *Runtime) Fabric() *messaging.Client { return r.fabric }

// Registry is the service's own metrics registry, served on /metrics.
func (r *Runtime) Registry() *prometheus.Registry { return r.registry }

// GRPCAddr is the host:port gRPC listens on, with the port that was really taken.
func (r *Runtime) GRPCAddr() string { return r.grpcLis.Addr().String() }

// AdvertisedAddr is the host:port under which other services reach gRPC.
func (r *Runtime) AdvertisedAddr() string {
	advertised := r.base.Options.GRPCAdvertiseAddress
	if host, port, err := net.SplitHostPort(advertised); err == nil && port == "0" {
		if _, taken, err := net.SplitHostPort(r.GRPCAddr()); err == nil {
			return net.JoinHostPort(host, taken)
		}
	}
	return cmp.Or(advertised, r.GRPCAddr())
}

// HTTPAddr is the host:port HTTP listens on, with the port that was really taken.
func (r *Runtime) HTTPAddr() string { return r.httpLis.Addr().String() }

// Go adds a part to the run group. run must return soon after its ctx ends (that is: stop pulling
// work, hand over). A part that returns an error or panics before that stops the service; one that
// returns nil is done. Parts added before Run start with it, later ones at once.
func (r *Runtime) Go(name string, run func(ctx context.Context) error) { r.parts.Go(name, run) }

// GoLast adds a part like Go does, whose ctx ends only after all parts added with Go have ended. It
// is for what those need while they hand over: the Lease of this instance.
func (r *Runtime) GoLast(name string, run func(ctx context.Context) error) { r.last.Go(name, run) }

// ReadyWhen adds a condition to readiness: /readyz and the gRPC health status are positive only
// while every check returns true. check must be fast, safe for concurrent use, and must not call
// back into the Runtime.
func (r *Runtime) ReadyWhen(name string, check func() bool) { r.ready.addCondition(name, check) }

// Close releases what New opened. It is only needed when Run is never called; calling it again is
// harmless.
func (r *Runtime) Close() {
	r.closing.Do(func() {
		listeners := []net.Listener{r.grpcLis, r.httpLis}
		for _, e := range r.endpoints {
			listeners = append(listeners, e.listener)
		}
		for _, lis := range listeners {
			if lis == nil {
				continue
			}
			if err := lis.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				r.base.Log.Warn("Failed to close listener", "error", err)
			}
		}
		if r.fabric != nil {
			r.fabric.Close()
		}
		if err := r.work.close(); err != nil {
			r.base.Log.Warn("Failed to remove work directory", "error", err)
		}
	})
}
