// Package app wires the restore-runner: the service that carries out restores.
package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	"github.com/holdfast-io/holdfast/pkg/location"
	"github.com/holdfast-io/holdfast/pkg/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/pluginhost/forservice"
	"github.com/holdfast-io/holdfast/pkg/service"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/cleanup"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/metrics"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/server"
)

// Name of the service and its default ports.
const (
	Name     = "restore-runner"
	GRPCPort = 7443
	HTTPPort = 8443
)

// Config is what the service is built from. Zero durations and counts mean the defaults of the flags.
type Config struct {
	service.Base
	// Concurrency is how many restores run at once in this process.
	Concurrency int
	// ClaimTimeout is how long the Lease of a runner may stay unchanged before its restores are taken over.
	ClaimTimeout time.Duration
	// TerminatingTimeout is how long a namespace, a definition or a volume with a snapshot that is going away is waited for.
	TerminatingTimeout time.Duration
	// ResourceTimeout is how long a restored definition may take to be served.
	ResourceTimeout time.Duration
	// ReadyTimeout is how long an object waits until the additional items that an action asked for are ready.
	ReadyTimeout time.Duration
	// Plugins are the limits of plugins.
	Plugins pluginhost.Flags
	// StorePatience is how long a location that cannot be reached is waited for before a restore fails.
	StorePatience time.Duration
	// Predecessors are instances known to be gone; see claim.Config.
	Predecessors []string
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.defaults()
	fs.IntVar(&c.Concurrency, "concurrency", c.Concurrency, "restores run at once by this process")
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", c.ClaimTimeout, "time without a sign of life after which a runner's restores are taken over")
	fs.DurationVar(&c.TerminatingTimeout, "terminating-resource-timeout", c.TerminatingTimeout, "longest wait for an object of the same name that is being deleted, or a volume with a snapshot that is going away")
	fs.DurationVar(&c.ResourceTimeout, "resource-timeout", c.ResourceTimeout, "longest wait for a restored definition or APIService to serve, or a webhook to answer")
	fs.DurationVar(&c.ReadyTimeout, "additional-items-ready-timeout", c.ReadyTimeout, "longest wait for the additional items of a plugin to be ready, where it does not say")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.StorePatience, "store-patience", c.StorePatience, "how long a location that cannot be reached is waited for before a restore fails")
}

func (c *Config) defaults() {
	if c.Concurrency <= 0 {
		c.Concurrency = 2
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{{&c.ClaimTimeout, 30 * time.Second}, {&c.TerminatingTimeout, 10 * time.Minute}, {&c.ResourceTimeout, 10 * time.Minute},
		{&c.ReadyTimeout, 10 * time.Minute}, {&c.StorePatience, 15 * time.Minute}} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
}

// App is the service.
type App struct {
	runtime *service.Runtime
	plugins *pluginhost.Host
}

// New connects the service; nothing is worked on before Run.
func New(ctx context.Context, config Config) (*App, error) {
	config.defaults()
	plugins, err := forservice.New(ctx, config.Base, config.Plugins)
	if err != nil {
		return nil, err
	}
	runtime, err := service.New(ctx, config.Base)
	if err != nil {
		return nil, err
	}
	app := &App{runtime: runtime, plugins: plugins}
	if err := app.wire(&config); err != nil {
		runtime.Close()
		return nil, fmt.Errorf("set up %s: %w", Name, err)
	}
	return app, nil
}

// Run serves until ctx ends.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// GRPCAddr is where the service answers.
func (a *App) GRPCAddr() string { return a.runtime.GRPCAddr() }

func (a *App) wire(config *Config) error {
	mgr, namespace := a.runtime.Manager(), config.Options.Namespace
	counts, err := metrics.New(a.runtime.Registry())
	if err != nil {
		return err
	}
	instance := claim.NewInstance(claim.Config{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Name: config.Instance,
		Address: a.runtime.GRPCAddr(), Timeout: config.ClaimTimeout, Predecessors: config.Predecessors,
		Clock: config.Clock, Log: config.Log,
	})
	locations := location.New(mgr.GetAPIReader(), namespace, location.WithPlugins(a.plugins, config.Log, a.runtime.WorkDir()))
	runner := job.New(job.Config{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Claims: instance,
		Ledger: ledger.New(mgr.GetAPIReader(), mgr.GetClient(), namespace), Locations: locations,
		REST: a.runtime.RestConfig(), Clock: config.Clock, Log: config.Log, Metrics: counts, WorkDir: a.runtime.WorkDir(),
		TerminatingTimeout: config.TerminatingTimeout, ResourceTimeout: config.ResourceTimeout,
		StorePatience: config.StorePatience, Actions: a.actions(config.Base), Snapshotters: a.snapshotters(config.Base), ReadyTimeout: config.ReadyTimeout,
		Ended: a.announce(config),
	})
	controller := job.NewController(runner, mgr.GetClient(), func(ctx context.Context, hint *workv1.Hint) error {
		return a.runtime.Fabric().Publish(ctx, fabric.WorkRestoreRun, hint)
	}, &cleanup.Cleaner{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Locations: locations, Log: config.Log}, config.Concurrency)
	if err := controller.Setup(mgr); err != nil {
		return err
	}
	restorev1.RegisterRestoreServiceServer(a.runtime.GRPC(), server.New(mgr.GetAPIReader(), namespace, runner, config.Clock))
	a.runtime.ReadyWhen("instance lease", instance.Ready)
	a.runtime.GoLast("instance", instance.Run)
	a.runtime.Go("plugin binaries", a.plugins.Run)
	a.runtime.Go("restores", func(ctx context.Context) error {
		return a.runtime.Fabric().Consume(ctx, fabric.WorkRestoreRun, fabric.ConsumerConfig{Concurrency: config.Concurrency}, runner.Handle)
	})
	a.runtime.Go("unannounced restores", controller.Serve)
	a.runtime.Go("takeovers", func(ctx context.Context) error { return controller.Succeed(ctx, instance.Expired()) })
	a.runtime.Go("census", controller.Census)
	return nil
}

// announce publishes the event of a terminal phase. Who misses it reads the object.
func (a *App) announce(config *Config) func(context.Context, *velerov1.Restore) {
	return func(ctx context.Context, o *velerov1.Restore) {
		err := a.runtime.Fabric().PublishEvent(ctx, &eventv1.Event{
			Kind: "Restore", Namespace: o.Namespace, Name: o.Name, Uid: string(o.UID),
			Phase: string(o.Status.Phase), Time: timestamppb.New(config.Clock.Now()),
		})
		if err != nil {
			config.Log.Debug("event not published", "restore", o.Name, "error", err)
		}
	}
}
