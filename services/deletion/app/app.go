// Package app builds the service deletion.
//
// Requests are jobs of package engine: any replica claims one and carries it out. Looking for
// expired backups and sweeping leftovers are done by one replica at a time.
package app

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	deletionv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/deletion/v1"
	"github.com/holdfast-io/holdfast/services/deletion/internal/expiry"
	"github.com/holdfast-io/holdfast/services/deletion/internal/remove"
	"github.com/holdfast-io/holdfast/services/deletion/internal/server"
	"github.com/holdfast-io/holdfast/services/deletion/internal/sweep"
	"github.com/holdfast-io/holdfast/services/deletion/internal/volumes"
)

// App is the service, built and not yet started.
type App struct {
	config   Config
	runtime  *service.Runtime
	instance *claim.Instance
	remover  *remove.Remover
	engine   *engine.Engine[*velerov1.DeleteBackupRequest]

	schedules *count.Schedules
}

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	rt, host, err := pluginhost.StartForService(ctx, c.Base, c.Plugins)
	if err != nil {
		return nil, err
	}
	a := &App{config: c, runtime: rt, schedules: count.NewSchedules(rt.Registry(), rt.Manager().GetClient(), c.Options.Namespace)}
	a.buildParts(host)
	for _, step := range []func() error{a.schedules.Err, a.addControllers} {
		if err := step(); err != nil {
			rt.Close()
			return nil, fmt.Errorf("service %s: %w", c.Name, err)
		}
	}
	return a, nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }

// addControllers adds what watches objects to the manager.
func (a *App) addControllers() error {
	if err := a.schedules.Watch(a.runtime.Manager(), Name+"-schedules"); err != nil {
		return err
	}
	return a.engine.Setup(a.runtime.Manager())
}

func (a *App) clusterReader() client.Reader { return a.runtime.Manager().GetAPIReader() }
func (a *App) clusterClient() client.Client { return a.runtime.Manager().GetClient() }

func (a *App) buildParts(host *pluginhost.Host) {
	c, namespace := a.config, a.config.Options.Namespace
	opener := location.New(a.clusterReader(), namespace, location.WithPlugins(host, c.Log, a.runtime.WorkDir()), location.WithMetrics(a.runtime.Registry(), c.Clock))
	a.instance = claim.NewInstance(claim.Config{
		Reader: a.clusterReader(), Client: a.clusterClient(), Namespace: namespace, Name: c.Instance, Address: a.runtime.AdvertisedAddr(),
		Timeout: c.ClaimTimeout, Clock: c.Clock, Log: c.Log,
	})
	a.remover = &remove.Remover{
		Reader: a.clusterReader(), Client: a.clusterClient(), Namespace: namespace, Locations: opener, Clock: c.Clock, Log: c.Log,
		Actions: a.itemActions(host, a.runtime.Registry()), Snapshots: a.snapshotRemover(host), Metrics: remove.NewMetrics(a.schedules),
	}
	csi, csiActions := a.csiRemoval()
	a.remover.CSI, a.remover.CSIActions = csi, csiActions
	a.remover.Volumes = &volumes.Forgetter{Reader: a.clusterReader(), Namespace: namespace, Dial: a.runtime.Dial}
	a.engine = engine.New(engine.Config[*velerov1.DeleteBackupRequest]{
		Service: Name, ObjectKind: "DeleteBackupRequest", Kind: a.remover,
		New:     func() *velerov1.DeleteBackupRequest { return &velerov1.DeleteBackupRequest{} },
		NewList: func() client.ObjectList { return &velerov1.DeleteBackupRequestList{} },
		Reader:  a.clusterReader(), Cached: a.clusterClient(), Client: a.clusterClient(), Namespace: namespace, Instance: a.instance,
		Bus: a.runtime.Fabric(), Work: messaging.WorkDeletionRun, Concurrency: c.Concurrency, Metrics: a.runtime.Registry(), Tracer: c.Tracer.Tracer(Name), Clock: c.Clock, Log: c.Log,
	})
	collector := &expiry.Collector{
		Reader: a.clusterReader(), Client: a.clusterClient(), Namespace: namespace, Locations: opener, Clock: c.Clock, Log: c.Log,
		Period: c.CollectionFrequency, Running: remove.Running, NeverWritten: remove.NeverWritten, PermanentlyRefused: remove.PermanentlyRefused,
	}
	deletionv1.RegisterDeletionServiceServer(a.runtime.GRPC(), &server.Server{
		Reader: a.clusterReader(), Client: a.clusterClient(), Namespace: namespace, Running: remove.Running, Restoring: a.remover.Restoring,
	})
	a.runtime.GoLast("instance", a.instance.Run)
	a.runtime.ReadyWhen("instance lease", a.instance.Ready)
	a.runtime.Go("deletions", a.engine.Serve)
	sweeper := sweep.New(sweep.Config{
		Reader: a.clusterReader(), Namespace: namespace, Opener: opener, Clock: c.Clock, Log: c.Log, Tracer: c.Tracer.Tracer(Name),
		Metrics: sweep.NewMetrics(a.runtime.Registry()), Interval: c.SweepInterval, Grace: c.ClaimTimeout, CSI: csi,
	})
	a.runtime.GoLeading(c.DutyTimeout, service.Duties{"backup-expiry": collector.Run, "leftover-sweep": sweeper.Run})
}
