// Package app builds the service deletion.
//
// Every replica watches requests and publishes a hint for each that is not processed; whichever replica gets the hint claims
// the request and carries it out. Without any hint a request is found by looking, and a dead holder's by its death. Looking for expired backups and sweeping leftovers are duties of one replica at a time.
package app

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/duty"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/location"
	"github.com/holdfast-io/holdfast/pkg/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/pluginhost/forservice"
	"github.com/holdfast-io/holdfast/pkg/service"
	deletionv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/deletion/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/deletion/internal/expiry"
	"github.com/holdfast-io/holdfast/services/deletion/internal/remove"
	"github.com/holdfast-io/holdfast/services/deletion/internal/server"
	"github.com/holdfast-io/holdfast/services/deletion/internal/slots"
	"github.com/holdfast-io/holdfast/services/deletion/internal/sweep"
)

const (
	// retry is how soon a request that is not processed is looked at again.
	retry = 5 * time.Second
	// offers is how many requests may wait to be looked at.
	offers = 64
)

// App is the service, built and not yet started.
type App struct {
	config   Config
	runtime  *service.Runtime
	instance *claim.Instance
	remover  *remove.Remover
	slots    *slots.Pool
	offered  chan string // names of requests to look at
}

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	rt, err := service.New(ctx, c.Base)
	if err != nil {
		return nil, err
	}
	host, err := forservice.New(ctx, c.Base, c.Plugins)
	if err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: --plugin-dir: %w", c.Name, err)
	}
	a := &App{config: c, runtime: rt, slots: slots.New(c.Concurrency, c.Clock), offered: make(chan string, offers)}
	a.build(host)
	if err := a.controller(); err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	return a, nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }

func (a *App) reader() client.Reader { return a.runtime.Manager().GetAPIReader() }
func (a *App) client() client.Client { return a.runtime.Manager().GetClient() }

func (a *App) build(host *pluginhost.Host) {
	c, namespace := a.config, a.config.Options.Namespace
	opener := location.New(a.reader(), namespace, location.WithPlugins(host, c.Log, a.runtime.WorkDir()))
	a.instance = claim.NewInstance(claim.Config{
		Reader: a.reader(), Client: a.client(), Namespace: namespace, Name: c.Instance, Address: a.runtime.GRPCAddr(),
		Timeout: c.ClaimTimeout, Predecessors: c.Predecessors, Clock: c.Clock, Log: c.Log,
	})
	a.remover = &remove.Remover{
		Reader: a.reader(), Client: a.client(), Namespace: namespace, Locations: opener, Claims: a.instance, Clock: c.Clock, Log: c.Log,
		Actions: a.actions(host), Snapshots: a.snapshots(host), Metrics: remove.NewMetrics(a.runtime.Registry()),
		Slots: a.slots,
	}
	collector := &expiry.Collector{
		Reader: a.reader(), Client: a.client(), Namespace: namespace, Locations: opener, Clock: c.Clock, Log: c.Log,
		Period: c.CollectionFrequency, Running: remove.Running, Settled: remove.Settled,
	}
	deletionv1.RegisterDeletionServiceServer(a.runtime.GRPC(), &server.Server{
		Reader: a.reader(), Client: a.client(), Namespace: namespace, Running: remove.Running, Restoring: a.remover.Restoring,
	})
	a.runtime.GoLast("instance", a.instance.Run)
	a.runtime.ReadyWhen("instance lease", a.instance.Ready)
	a.runtime.Go("deletions", func(ctx context.Context) error {
		return a.runtime.Fabric().Consume(ctx, fabric.WorkDeletionRun, fabric.ConsumerConfig{Concurrency: c.Concurrency}, a.handle)
	})
	a.runtime.Go("plugin binaries", host.Run)
	a.runtime.Go("offered deletions", a.work)
	a.runtime.Go("slots of deletions", a.slots.Run)
	a.runtime.Go("takeovers", a.takeovers)
	sweeper := sweep.New(sweep.Config{
		Reader: a.reader(), Namespace: namespace, Opener: opener, Clock: c.Clock, Log: c.Log, Tracer: c.Tracer.Tracer(Name),
		Metrics: sweep.NewMetrics(a.runtime.Registry()), Interval: c.SweepInterval, Grace: c.ClaimTimeout,
		KeepFailed: func() bool { return host.MayServe(pluginhost.KindDeleteItemAction) },
	})
	a.duty("backup-expiry", collector.Run)
	a.duty("leftover-sweep", sweeper.Run)
}

// duty adds a task that one replica does at a time.
func (a *App) duty(name string, run func(context.Context) error) {
	config := duty.Config{
		Reader: a.reader(), Client: a.client(), Namespace: a.config.Options.Namespace, Name: name, Instance: a.config.Instance, Log: a.config.Log,
		Timeout: a.config.DutyTimeout,
	}
	a.runtime.Go(name, func(ctx context.Context) error { return duty.Run(ctx, config, run) })
}

// handle offers the request that a hint points at. The hint stays until the request is found processed: its work may take hours,
// and other hints must not wait for it.
func (a *App) handle(ctx context.Context, hint *workv1.Hint) fabric.Outcome {
	var d velerov1.DeleteBackupRequest
	key := client.ObjectKey{Namespace: a.config.Options.Namespace, Name: hint.GetName()}
	err := a.reader().Get(ctx, key, &d)
	switch {
	case apierrors.IsNotFound(err):
		return fabric.Done()
	case err != nil:
		return fabric.Retry(retry, err)
	case d.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed:
		return fabric.Done()
	}
	a.offer(d.Name)
	if held, ok, err := claim.Parse(&d); err == nil && ok && held.Holder != "" {
		return fabric.Retry(republish, nil) // the death of its holder is noticed without it
	}
	return fabric.Retry(retry, nil)
}
