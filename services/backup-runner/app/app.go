// Package app is the backup-runner service: it collects what a Backup selects and writes it into
// the bucket.
package app

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/job"
)

// dutyTimeouts is the timeout of the duties in claim timeouts.
const dutyTimeouts = 2

// App is the service, built and not yet running.
type App struct {
	config   Config
	runtime  *service.Runtime
	instance *claim.Instance
	backups  *engine.Engine[*velerov1.Backup]
}

// New connects the service; nothing is served before Run.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	c.DrainLimit = c.Operations.DrainTimeout
	rt, err := service.New(ctx, c.Base)
	if err != nil {
		return nil, err
	}
	a := &App{config: c, runtime: rt}
	if err := a.buildParts(ctx); err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	a.addParts()
	return a, nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }

func (a *App) buildParts(ctx context.Context) error {
	c, rt := &a.config, a.runtime
	mgr, namespace := rt.Manager(), c.Options.Namespace
	schedules := count.NewSchedules(rt.Registry(), mgr.GetClient(), namespace)
	counts, err := count.NewBackups(schedules)
	if err != nil {
		return err
	}
	if err := schedules.Watch(mgr, Name+"-schedules"); err != nil {
		return err
	}
	source, err := cut.NewCluster(rt.RestConfig(), c.Clock, rt.WorkDir())
	if err != nil {
		return err
	}
	plugins, err := pluginhost.NewForService(ctx, c.Base, c.Plugins, rt.Registry())
	if err != nil {
		return fmt.Errorf("--plugin-dir: %w", err)
	}
	rt.Go("plugin binaries", plugins.Run)
	operations := plugins.Operations(context.WithoutCancel(ctx), c.Log) // ended by Close
	stay := &operationhome.Stay{Processes: operations, Limit: c.Operations.DrainTimeout, Log: c.Log}
	a.instance = claim.NewInstance(claim.Config{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Name: c.Instance,
		Address: rt.AdvertisedAddr(), Timeout: c.ClaimTimeout,
		Busy: stay.Busy, Clock: c.Clock, Log: c.Log,
	})
	rt.GoLast("operations of plugins", stay.Run)
	rt.GoLast("instance", stay.Before(a.instance.Run))
	home := &operationhome.Server{Instance: c.Instance, Processes: operations}
	operationv1.RegisterOperationServiceServer(rt.GRPC(), home)
	homes := operationhome.NewClient(claim.NewPeers(mgr.GetAPIReader(), namespace, c.Clock), rt.Dial, home)
	rt.GoLast("calls about operations", homes.Run)
	exec, err := podexec.New(rt.RestConfig())
	if err != nil {
		return err
	}
	snapshots := csisnapshot.API{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Clock: c.Clock, Log: c.Log}
	csi := newCSI(c.Base, snapshots)
	podVolumes := podvolume.API{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Clock: c.Clock, Log: c.Log}
	locations := location.New(mgr.GetAPIReader(), namespace, location.WithPlugins(plugins, c.Log, rt.WorkDir()), location.WithMetrics(rt.Registry(), c.Clock))
	owed := &job.OwedHooksTask{Locations: locations, Exec: exec, Reader: mgr.GetAPIReader(), Cached: mgr.GetClient(), Client: mgr.GetClient(),
		Namespace: namespace, Clock: c.Clock, Log: c.Log, Events: mgr.GetEventRecorder(Name)}
	rt.GoLeading(dutyTimeouts*c.ClaimTimeout, service.Duties{"owed-post-hooks": owed.Run})
	kind := job.New(job.Config{
		Reader:    mgr.GetAPIReader(),
		Ledger:    ledger.New(mgr.GetAPIReader(), mgr.GetClient(), namespace),
		Locations: locations, Cluster: source, Events: rt.Fabric(), Recorder: mgr.GetEventRecorder(Name),
		Actions:   &actionSource{host: plugins, base: c.Base, lists: source, csi: csi, podVolumes: &podVolumeSource{api: podVolumes, mover: podvolume.Mover(c.VolumeMover), timeout: c.FsBackupTimeout}},
		Snapshots: (&snapshotSource{host: plugins, base: c.Base, reader: mgr.GetAPIReader(), csi: csi, workDir: rt.WorkDir()}).openTaker,
		CSI:       csi.snapshotRemover(), PodVolumes: podVolumes,
		Operations: &operation.Canceller{
			Actions: &operation.Actions{Homes: homes, Shared: &podvolume.Operations{
				API: podVolumes, Others: &csisnapshot.Operations{API: snapshots, Others: operations},
			}}, Clock: c.Clock, Log: c.Log,
		},
		Exec:   exec,
		Counts: counts, Clock: c.Clock, Log: c.Log, WorkDir: rt.WorkDir(),
		Workers: c.Workers, PartBytes: c.PartBytes, PartItems: c.PartItems, BlockWorkers: c.BlockWorkers, ConsistentCut: c.ConsistentCut == CutAuto, PlanLifetime: c.PlanLifetime, StorePatience: c.StorePatience,
	})
	a.backups = engine.New(engine.Config[*velerov1.Backup]{
		Service: job.Service, ObjectKind: "Backup", Kind: kind, New: func() *velerov1.Backup { return &velerov1.Backup{} },
		NewList: func() client.ObjectList { return &velerov1.BackupList{} },
		Reader:  mgr.GetAPIReader(), Cached: mgr.GetClient(), Client: mgr.GetClient(), Namespace: namespace, Instance: a.instance,
		Bus: rt.Fabric(), Work: messaging.WorkBackupRun, Concurrency: c.Jobs, Grace: job.GracePeriod, Cancellable: true,
		Events: mgr.GetEventRecorder(Name), Metrics: rt.Registry(), Tracer: c.Tracer.Tracer(Name),
		Clock: c.Clock, Log: c.Log,
	})
	backupv1.RegisterBackupServiceServer(rt.GRPC(), job.NewServer(mgr.GetAPIReader(), namespace, c.Clock, kind))
	return a.backups.Setup(mgr)
}

// addParts adds what runs beside the servers.
func (a *App) addParts() {
	rt := a.runtime
	rt.Go("backups", a.backups.Serve)
	rt.ReadyWhen("lease", a.instance.Ready)
}
