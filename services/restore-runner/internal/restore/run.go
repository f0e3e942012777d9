package restore

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/actions"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/flight"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/podhook"
)

// restoreRun is one restore: what its passes share, and the passes.
type restoreRun struct {
	cfg      *Config
	stop     object.StopSignal
	timeouts object.DelayTimeouts
	reset    *apply.ResetOptions

	existing *object.LiveReader
	catalog  *object.Catalog
	names    *object.Names
	targets  *object.TargetNamespaces
	loader   *object.Loader
	owners   *flight.Linker
	finisher *flight.Finisher
	workers  *flight.WorkerPool
	screen   *flight.Screen
	pending  *actions.PendingStore
	chains   *actions.Chains
	creator  *flight.Creator
	hooks    *podhook.Runner
	keeper   *endpointsKeeper

	definitions *definitionRestorer
	namespaces  *namespaceCreator
}

// newRestoreRun puts together what restores definitions and namespaces; what restores the objects depends
// on both.
func newRestoreRun(cfg Config) (*restoreRun, error) {
	limiter := &dispatch.Limiter{}
	manager := apply.ManagerOf(cfg.UID)
	client, err := apply.NewClient(cfg.REST, manager, limiter, cfg.Clock, cfg.Confirm)
	if err != nil {
		return nil, err
	}
	client = client.ForDryRun(cfg.DryRun)
	r := &restoreRun{cfg: &cfg, stop: cfg.Stop, timeouts: object.DelayTimeouts{Terminating: cfg.TerminatingTimeout, Resource: cfg.ResourceTimeout}}
	if cfg.DryRun != nil {
		r.timeouts, cfg.Exec = object.DelayTimeouts{}, nil
	}
	r.reset = &apply.ResetOptions{
		Backup: cfg.Backup, Restore: cfg.Restore, MapNamespace: cfg.Plan.MapNamespace,
		PreserveNodePorts: cfg.Spec.PreserveNodePorts != nil && *cfg.Spec.PreserveNodePorts,
		PreserveAddresses: cfg.PreserveAddresses,
		Reprovision:       cfg.Volumes.Reprovision,
	}
	r.existing = &object.LiveReader{Client: client, Manager: manager}
	r.catalog = object.NewCatalog(cfg.REST, cfg.Catalog)
	r.names = object.NewNames(cfg.Plan, cfg.Recorder, cfg.History)
	r.targets = object.NewTargetNamespaces(cfg.History.Lost)
	r.names.Versions = &object.Versions{Client: client}
	r.loader = &object.Loader{Source: cfg.Source, Plan: cfg.Plan, Catalog: r.catalog, Versions: r.names.Versions}
	r.owners = flight.NewLinker(flight.LinkerConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Existing: r.existing, Catalog: r.catalog, Names: r.names, Namespaces: r.targets,
		Limit: limiter.Limit, Stop: r.stop,
	})
	r.finisher = &flight.Finisher{DryRun: cfg.DryRun != nil, Plan: cfg.Plan, Recorder: cfg.Recorder, Owners: r.owners}
	r.workers = &flight.WorkerPool{Plan: cfg.Plan, Recorder: cfg.Recorder, Finisher: r.finisher, Clock: cfg.Clock, Limit: limiter.Limit, Stop: r.stop}
	r.screen = &flight.Screen{Plan: cfg.Plan, Volumes: cfg.Volumes, Runs: cfg.Runs, Owners: r.owners, Loader: r.loader, Server: cfg.Server}
	r.pending = &actions.PendingStore{Dir: cfg.Dir}
	r.creator = &flight.Creator{
		Plan: cfg.Plan, Recorder: cfg.Recorder, History: cfg.History, Finisher: r.finisher, Existing: r.existing, Names: r.names,
		PreserveNodePorts: r.reset.PreserveNodePorts, PreserveAddresses: cfg.PreserveAddresses, Injections: cfg.Injections, Update: cfg.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate,
		UpdateNamed: cfg.Spec.ExistingResourcePolicy != velerov1.PolicyTypeNone,
	}
	r.hooks = podhook.New(podhook.Config{
		Spec: &cfg.Spec.Hooks, Exec: cfg.Exec, DryRun: cfg.DryRun != nil, Recorder: cfg.Recorder, Existing: r.existing, Names: r.names, Confirm: cfg.Confirm,
		NoHistory: cfg.History.NoHistory, MaxWait: cfg.Spec.ItemOperationTimeout.Duration, Clock: cfg.Clock, Stop: r.stop,
	})
	r.keeper = newEndpointsKeeper(r)
	r.keeper.over = r.keeper.over || cfg.DryRun != nil
	r.makeChains()
	r.makeRestorers()
	return r, nil
}

// makeChains makes the chains of actions.
func (r *restoreRun) makeChains() {
	cfg := r.cfg
	caller := actions.NewCaller(actions.CallerConfig{
		Recorder: cfg.Recorder, History: cfg.History, Restore: cfg.Object,
		Confirm: cfg.Confirm, IsProcessCrash: cfg.IsProcessCrash, IsNotSent: cfg.IsNotSent, Stop: r.stop,
		Plan: cfg.Plan, Target: r.names.Target, Unrecorded: cfg.Unrecorded, Instance: cfg.Instance, Clock: cfg.Clock,
	})
	r.chains = actions.NewChains(actions.ChainsConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Loader: r.loader, Finisher: r.finisher, Existing: r.existing, Names: r.names,
		Catalog: r.catalog, Pending: r.pending, Caller: caller, Clock: cfg.Clock, ReadyTimeout: cfg.ReadyTimeout, DryRun: cfg.DryRun != nil,
	}, cfg.Actions)
	r.loader.Converted = r.chains.Follows
}

// makeRestorers makes what restores definitions and namespaces.
func (r *restoreRun) makeRestorers() {
	cfg := r.cfg
	poller := object.Poller{Clock: cfg.Clock, Stop: r.stop, Recorder: cfg.Recorder}
	r.definitions = newDefinitionRestorer(definitionsConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, History: cfg.History, Loader: r.loader, Chains: r.chains, Pending: r.pending,
		Creator: r.creator, Finisher: r.finisher, Existing: r.existing, Catalog: r.catalog, Reset: r.reset, Report: r.screen.Report,
		Timeouts: r.timeouts, Poller: poller, Workers: r.workers, Clock: cfg.Clock, DryRun: cfg.DryRun,
	})
	r.namespaces = newNamespaceCreator(namespacesConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Loader: r.loader, Creator: r.creator, Finisher: r.finisher, Existing: r.existing, Names: r.names,
		Targets: r.targets, Timeouts: r.timeouts, Poller: poller, Workers: r.workers,
	})
}

// restoreObjects restores everything else: the last pass over them.
func (r *restoreRun) restoreObjects(ctx context.Context) error {
	cfg := r.cfg
	services := flight.NewAPIServices(flight.APIServicesConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Client: r.existing.Client, Catalog: r.catalog, Timeouts: r.timeouts,
	})
	late := flight.FindLateWebhooks(ctx, flight.WebhooksConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Source: cfg.Source, Existing: r.existing, Names: r.names,
	})
	provisioner := volumes.NewProvisioner(volumes.ProvisionerConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, History: cfg.History, Loader: r.loader, Existing: r.existing, Names: r.names,
		Volumes: cfg.Volumes, Namespaces: r.targets, Snapshotters: cfg.Snapshotters, UID: cfg.UID, Confirm: cfg.Confirm, Timeouts: r.timeouts, Stop: r.stop, DryRun: cfg.DryRun != nil,
	})
	job := podvolume.RestoreJob{Name: cfg.Restore, UID: cfg.UID, Namespace: cfg.Server, Location: cfg.Location,
		Settings: podvolume.RestoreSettings(cfg.Spec.UploaderConfig, cfg.OverwriteVolumes)}
	claims := volumes.NewFiller(volumes.FillerConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Source: cfg.Source, Catalog: r.catalog, Existing: r.existing, Volumes: cfg.Volumes,
		Snapshots: cfg.Snapshots, Defined: r.definitions.Defined, Timeouts: r.timeouts, Job: job, MoveTimeout: cfg.SnapshotTimeout,
		Restore: restored.Restore{Server: cfg.Server, UID: cfg.UID, Labels: map[string]string{
			velerov1.LabelBackupName: velerov1.LabelValue(cfg.Backup), velerov1.LabelRestoreName: velerov1.LabelValue(cfg.Restore)}},
	})
	pods := volumes.NewPodFiller(volumes.PodFillerConfig{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Existing: r.existing, Volumes: cfg.Volumes, Image: cfg.WaitImage, Config: cfg.WaitConfig,
		Restore: job, Unrecorded: cfg.Unrecorded, DryRun: cfg.DryRun != nil, Timeouts: r.timeouts, Clock: cfg.Clock,
	})
	quotas := flight.NewQuotas(flight.QuotasConfig{Plan: cfg.Plan, Recorder: cfg.Recorder, Client: r.existing.Client, Namespaces: r.targets,
		Poller: object.Poller{Clock: cfg.Clock, Stop: r.stop, Recorder: cfg.Recorder}})
	pauser := &pausing.Pauser{Rules: cfg.Pauses, Recorder: cfg.Recorder, Existing: r.existing, Namespaces: r.targets}
	p := &objectRestorer{
		plan: cfg.Plan, recorder: cfg.Recorder, loader: r.loader, screen: r.screen, chains: r.chains, pending: r.pending,
		namespaces: r.namespaces, services: services, finisher: r.finisher, workers: r.workers, reset: r.reset, retrier: dispatch.NewRetrier(cfg.Clock),
		creation: &objectCreation{
			plan: cfg.Plan, client: r.existing.Client, creator: r.creator, finisher: r.finisher, volumes: provisioner, claims: claims, pods: pods, pauser: pauser, hooks: r.hooks, keeper: r.keeper,
			webhooks: late, quotas: quotas, names: r.names, reset: r.reset, catalog: r.catalog, defined: r.definitions.Defined, timeouts: r.timeouts,
		},
	}
	return p.restoreAll(ctx)
}

// awaitEnd waits for claims and hooks, and for Endpoints that may go. Then every object has its outcome.
// What waits refers to no plan.
func (r *restoreRun) awaitEnd(ctx context.Context) error {
	group, ctx := panics.NewGroup(ctx)
	claims := &volumes.Awaiter{Recorder: r.cfg.Recorder, Existing: r.existing, Clock: r.cfg.Clock, Timeout: r.timeouts.Resource, Stop: r.stop}
	hooks, ended := r.hooks, make(chan struct{})
	group.Go(func() error {
		defer close(ended)
		if err := claims.Await(ctx); err != nil {
			return err
		}
		return hooks.Wait(ctx)
	})
	group.Go(func() error {
		if err := r.keeper.settleAgain(ctx, ended); err != nil {
			return err
		}
		return r.noteRestored(ctx)
	})
	return group.Wait()
}

// noteRestored reports that every object has its outcome. Where something is waited for the plan is released.
func (r *restoreRun) noteRestored(ctx context.Context) error {
	recorder := r.cfg.Recorder
	if c := recorder.Counts(); c.Done < c.Total {
		return nil
	}
	if len(recorder.Owed())+len(recorder.Filled()) > 0 {
		names := r.cfg.Plan.Names()
		r.names.KeepNames(names)
		recorder.KeepNames(names)
	}
	if r.cfg.Restored == nil {
		return nil
	}
	return r.cfg.Restored(ctx)
}
