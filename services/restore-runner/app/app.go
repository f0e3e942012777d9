// Package app wires the restore-runner: the service that carries out restores.
package app

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

// dutyTimeouts is the timeout of the duties in claim timeouts.
const dutyTimeouts = 2

// App is the service.
type App struct {
	runtime *service.Runtime
	plugins *pluginhost.Host
	home    *operationhome.Server
	stay    *operationhome.Stay
}

// New connects the service; nothing is worked on before Run.
func New(ctx context.Context, config Config) (*App, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.DrainLimit = config.Operations.DrainTimeout
	runtime, err := service.New(ctx, config.Base)
	if err != nil {
		return nil, err
	}
	plugins, err := pluginhost.NewForService(ctx, config.Base, config.Plugins, runtime.Registry())
	if err != nil {
		runtime.Close()
		return nil, err
	}
	operations := plugins.Operations(context.WithoutCancel(ctx), config.Log) // ended by Close
	app := &App{runtime: runtime, plugins: plugins, stay: &operationhome.Stay{Processes: operations, Limit: config.Operations.DrainTimeout, Log: config.Log}}
	runtime.GoLast("operations of plugins", app.stay.Run)
	app.home = &operationhome.Server{Instance: config.Instance, Processes: operations}
	operationv1.RegisterOperationServiceServer(runtime.GRPC(), app.home)
	if err := app.wireParts(&config); err != nil {
		runtime.Close()
		return nil, fmt.Errorf("set up %s: %w", Name, err)
	}
	return app, nil
}

// Run serves until ctx ends.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// GRPCAddr is where the service answers.
func (a *App) GRPCAddr() string { return a.runtime.GRPCAddr() }

func (a *App) wireParts(config *Config) error {
	mgr, namespace := a.runtime.Manager(), config.Options.Namespace
	schedules := count.NewSchedules(a.runtime.Registry(), mgr.GetClient(), namespace)
	counts, err := job.NewMetrics(a.runtime.Registry(), schedules)
	if err != nil {
		return err
	}
	if err := schedules.Watch(mgr, Name+"-schedules"); err != nil {
		return err
	}
	instance := claim.NewInstance(claim.Config{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Name: config.Instance,
		Address: a.runtime.AdvertisedAddr(), Timeout: config.ClaimTimeout,
		Busy: a.stay.Busy, Clock: config.Clock, Log: config.Log,
	})
	locations := location.New(mgr.GetAPIReader(), namespace, location.WithPlugins(a.plugins, config.Log, a.runtime.WorkDir()), location.WithMetrics(a.runtime.Registry(), config.Clock))
	exec, err := podexec.New(a.runtime.RestConfig())
	if err != nil {
		return err
	}
	homes := operationhome.NewClient(claim.NewPeers(mgr.GetAPIReader(), namespace, config.Clock), a.runtime.Dial, a.home)
	a.runtime.GoLast("calls to other instances", homes.Run)
	kind := job.New(job.Config{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace,
		Ledger: ledger.New(mgr.GetAPIReader(), mgr.GetClient(), namespace), Locations: locations,
		Cleaner: &job.FileCleaner{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Locations: locations, Log: config.Log},
		REST:    a.runtime.RestConfig(), Clock: config.Clock, Log: config.Log, Metrics: counts, WorkDir: a.runtime.WorkDir(),
		TerminatingTimeout: config.TerminatingTimeout, ResourceTimeout: config.ResourceTimeout,
		StorePatience: config.StorePatience, WaitImage: config.RestoreWaitImage, WaitConfig: a.waitConfig(config.Base), Exec: exec, Actions: a.actionSets(config.Base), Snapshotters: a.snapshotterSets(config.Base), ReadyTimeout: config.ReadyTimeout,
		CSI:          isCSIEnabled(config.Base),
		Validator:    &validate.Validator{Reader: mgr.GetAPIReader(), Namespace: namespace, Locations: locations, Clock: config.Clock},
		PlanLifetime: config.PlanLifetime,
		Operations:   &operation.Canceller{Actions: &operation.Actions{Shared: a.operations(config), Homes: homes}, Clock: config.Clock, Log: config.Log},
		Ended:        a.phaseAnnouncer(config), Events: mgr.GetEventRecorder(Name),
	})
	jobs := a.newEngine(config, kind, instance)
	if err := jobs.Setup(mgr); err != nil {
		return err
	}
	answers := newServer(mgr.GetAPIReader(), namespace, kind, config.Instance, config.Clock)
	answers.plans, answers.holders = kind, homes
	restorev1.RegisterRestoreServiceServer(a.runtime.GRPC(), answers)
	a.runtime.ReadyWhen("instance lease", instance.Ready)
	a.runtime.GoLast("instance", a.stay.Before(instance.Run))
	a.runtime.Go("plugin binaries", a.plugins.Run)
	a.runtime.Go("restores", jobs.Serve)
	duties := service.Duties{"resumption": a.newResumptionTask(config, locations, jobs, instance).Run}
	if isCSIEnabled(config.Base) {
		duties["restored-snapshots"] = a.newSweeper(config).Run
	}
	a.runtime.GoLeading(dutyTimeouts*config.ClaimTimeout, duties)
	return nil
}

// newEngine returns the engine that restores live in.
func (a *App) newEngine(config *Config, kind *job.Kind, instance *claim.Instance) *engine.Engine[*velerov1.Restore] {
	mgr := a.runtime.Manager()
	return engine.New(engine.Config[*velerov1.Restore]{
		Service: Name, ObjectKind: "Restore", Kind: kind,
		New: func() *velerov1.Restore { return &velerov1.Restore{} }, NewList: func() client.ObjectList { return &velerov1.RestoreList{} },
		Reader: mgr.GetAPIReader(), Cached: mgr.GetClient(), Client: mgr.GetClient(), Namespace: config.Options.Namespace,
		Instance: instance, Bus: a.runtime.Fabric(), Work: messaging.WorkRestoreRun,
		Concurrency: config.Concurrency, Grace: job.Grace, Cancellable: true, Events: mgr.GetEventRecorder(Name), Metrics: a.runtime.Registry(),
		Tracer: config.Tracer.Tracer(Name), Clock: config.Clock, Log: config.Log,
	})
}

// newResumptionTask returns the task that resumes what restores left paused.
func (a *App) newResumptionTask(config *Config, locations pausing.Locations, jobs *engine.Engine[*velerov1.Restore], instance *claim.Instance) *pausing.Task {
	mgr := a.runtime.Manager()
	return &pausing.Task{
		Resumer: pausing.Resumer{Locations: locations, REST: a.runtime.RestConfig(), Clock: config.Clock},
		Reader:  mgr.GetAPIReader(), Cached: mgr.GetClient(), Client: mgr.GetClient(), Namespace: config.Options.Namespace, Log: config.Log, Events: mgr.GetEventRecorder(Name),
		Free: func(o *velerov1.Restore) bool {
			if jobs.Active(o) {
				return false
			}
			if _, _, err := claim.Parse(o); err != nil {
				return true // no process can hold it
			}
			return instance.Held(o) == nil
		},
	}
}

// phaseAnnouncer records a terminal phase on the object and publishes its event. Who misses it reads the
// object.
func (a *App) phaseAnnouncer(config *Config) func(context.Context, *velerov1.Restore) {
	recorder := a.runtime.Manager().GetEventRecorder(Name)
	return func(ctx context.Context, o *velerov1.Restore) {
		mark.RecordEnd(recorder, o)
		err := a.runtime.Fabric().PublishEvent(ctx, &eventv1.Event{
			Kind: "Restore", Namespace: o.Namespace, Name: o.Name, Uid: string(o.UID),
			Phase: string(o.Status.Phase), Time: timestamppb.New(config.Clock.Now()),
		})
		if err != nil {
			config.Log.Debug("Failed to publish event; receivers have to read the object", "restore", o.Name, "error", err)
		}
	}
}
