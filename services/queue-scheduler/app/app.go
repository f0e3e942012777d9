// Package app builds the service queue-scheduler.
//
// One replica at a time makes the passes (a duty); any replica answers RPCs. That two might pass at
// once for a moment does no harm: the ledger decides.
package app

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/discovery"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/metrics"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/server"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/settings"
)

// App is the service, built and not yet started.
type App struct {
	config    Config
	runtime   *service.Runtime
	locations *location.Opener
	scheduler *queue.Scheduler
	feed      *server.Feed
}

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.CacheTransform = queue.StripEnded
	rt, host, err := pluginhost.StartForService(ctx, c.Base, c.Plugins)
	if err != nil {
		return nil, err
	}
	a := &App{config: c, runtime: rt, locations: location.New(rt.Manager().GetAPIReader(), c.Options.Namespace, location.WithPlugins(host, c.Log, rt.WorkDir()), location.WithMetrics(rt.Registry(), c.Clock))}
	if err := a.buildParts(); err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	return a, nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }

func (a *App) buildParts() error {
	c, rt := a.config, a.runtime
	reader, writer, namespace := rt.Manager().GetAPIReader(), rt.Manager().GetClient(), c.Options.Namespace
	versions, err := discovery.NewDiscoveryClientForConfig(rt.RestConfig())
	if err != nil {
		return fmt.Errorf("discovery client: %w", err)
	}
	schedules := count.NewSchedules(rt.Registry(), writer, namespace)
	counters, err := metrics.New(rt.Registry(), schedules)
	if err != nil {
		return err
	}
	snapshotLocations, err := c.snapshotLocations()
	if err != nil {
		return err
	}
	book := ledger.New(reader, writer, namespace)
	jobs := queue.NewJobCache(rt.Manager().GetCache())
	a.scheduler = queue.New(queue.Config{
		Reader: reader, Jobs: jobs, Client: writer, Namespace: namespace, Ledger: book, Publisher: rt.Fabric(),
		Validator: &validate.Validator{
			Reader: reader, Namespace: namespace, Locations: a.locations, Clock: c.Clock, CSI: slices.Contains(c.Options.Features, service.FeatureCSI),
			Version: validate.RememberVersion(versions), Defaults: validate.Defaults{
				TTL: c.DefaultBackupTTL, ItemOperationTimeout: c.DefaultItemOperationTimeout, CSISnapshotTimeout: csiSnapshotTimeout,
				ResourceTimeout: c.ResourceTimeout, Location: c.DefaultLocation, SnapshotLocations: snapshotLocations,
				VolumesToFsBackup: c.DefaultVolumesToFsBackup, SnapshotMoveData: c.DefaultSnapshotMoveData,
			},
		},
		Limits: settings.New(settings.Config{
			Reader: reader, Namespace: namespace, Flags: ledger.Limits{Backups: c.ConcurrentBackups, Restores: c.ConcurrentRestores},
			Events: rt.Manager().GetEventRecorder(Name), Log: c.Log,
		}).Limits,
		Ageing: c.PriorityAgeing, LocationTimeout: c.LocationTimeout, ClaimTimeout: c.ClaimTimeout,
		Events:  rt.Manager().GetEventRecorder(Name),
		Metrics: counters, Tracer: c.Tracer, Clock: c.Clock, Log: c.Log,
	})
	canceller, err := a.newCanceller(counters)
	if err != nil {
		return err
	}
	a.feed = server.NewFeed(a.scheduler, c.Clock)
	rt.Go("queue feed", a.feed.Run)
	queuev1.RegisterQueueServiceServer(rt.GRPC(), &server.Server{
		Canceller: canceller, Reader: reader, Client: writer, Namespace: namespace, Queue: a.scheduler, Feed: a.feed,
	})
	objectGauges := metrics.NewGauges(metrics.Config{Reader: rt.Manager().GetClient(), Namespace: namespace, Clock: c.Clock, Log: c.Log})
	if err := rt.Registry().Register(objectGauges); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	makesBackups, err := a.newScheduler(schedules, jobs)
	if err != nil {
		return err
	}
	rt.GoLeading(c.DutyTimeout, service.Duties{"queue": objectGauges.ShowWhile(a.scheduler.Run), "schedules": makesBackups.Run})
	return a.watchObjects()
}
