package restore

import (
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/backoff"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/apiservice"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/call"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/chain"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/create"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/csiclaim"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/definitions"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/existing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/finish"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/namespaces"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/naming"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/owners"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/pausing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/pending"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/podhook"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/provision"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/screen"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/served"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/target"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/webhooks"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/workers"
)

// run is one restore: what its passes share, and the passes.
type run struct {
	cfg      *Config
	stop     stop.Signal
	timeouts delay.Timeouts
	reset    *reset.Options

	existing *existing.Reader
	catalog  *served.Catalog
	names    *naming.Names
	targets  *target.Namespaces
	loader   *object.Loader
	owners   *owners.Linker
	finisher *finish.Finisher
	workers  *workers.Pool
	screen   *screen.Screen
	pending  *pending.Store
	chains   *chain.Chains
	creator  *create.Creator
	hooks    *podhook.Runner

	definitions *definitions.Restorer
	namespaces  *namespaces.Creator
}

// newRun puts together what restores definitions and namespaces; what restores the objects depends
// on both.
func newRun(cfg Config) (*run, error) {
	limiter := &dispatch.Limiter{}
	manager := apply.ManagerOf(cfg.UID)
	client, err := apply.NewClient(cfg.REST, manager, limiter, cfg.Clock, cfg.Confirm)
	if err != nil {
		return nil, err
	}
	r := &run{cfg: &cfg, stop: cfg.Stop, timeouts: delay.Timeouts{Terminating: cfg.TerminatingTimeout, Resource: cfg.ResourceTimeout}}
	r.reset = &reset.Options{
		Backup: cfg.Backup, Restore: cfg.Restore, MapNamespace: cfg.Plan.MapNamespace,
		PreserveNodePorts: cfg.Spec.PreserveNodePorts != nil && *cfg.Spec.PreserveNodePorts,
		Reprovision:       cfg.Volumes.Reprovision,
	}
	r.existing = &existing.Reader{Client: client, Manager: manager}
	r.catalog = served.New(cfg.REST, cfg.Catalog)
	r.names = naming.New(cfg.Plan, cfg.Recorder, cfg.History.Names)
	r.targets = target.New(cfg.History.Lost)
	r.loader = &object.Loader{Source: cfg.Source, Plan: cfg.Plan, Catalog: r.catalog}
	r.owners = owners.New(owners.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Existing: r.existing, Names: r.names, Namespaces: r.targets,
		Limit: limiter.Limit, Stop: r.stop,
	})
	r.finisher = &finish.Finisher{Plan: cfg.Plan, Recorder: cfg.Recorder, Owners: r.owners}
	r.workers = &workers.Pool{Plan: cfg.Plan, Recorder: cfg.Recorder, Finisher: r.finisher, Clock: cfg.Clock, Limit: limiter.Limit, Stop: r.stop}
	r.screen = &screen.Screen{Plan: cfg.Plan, Volumes: cfg.Volumes, Runs: cfg.Runs, Owners: r.owners}
	r.pending = &pending.Store{Dir: cfg.Dir}
	r.creator = &create.Creator{
		Plan: cfg.Plan, Recorder: cfg.Recorder, History: cfg.History, Finisher: r.finisher, Existing: r.existing, Names: r.names,
		PreserveNodePorts: r.reset.PreserveNodePorts, Update: cfg.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate,
	}
	r.hooks = podhook.New(podhook.Config{
		Spec: &cfg.Spec.Hooks, Exec: cfg.Exec, Recorder: cfg.Recorder, Existing: r.existing, Names: r.names, Confirm: cfg.Confirm,
		Blind: cfg.History.Blind, MaxWait: cfg.Spec.ItemOperationTimeout.Duration, Clock: cfg.Clock, Stop: r.stop,
	})
	r.chain()
	r.prepare()
	return r, nil
}

// chain makes the chains of actions.
func (r *run) chain() {
	cfg := r.cfg
	caller := call.New(call.Config{
		Recorder: cfg.Recorder, History: cfg.History, Restore: cfg.Object,
		Confirm: cfg.Confirm, Collateral: cfg.Collateral, Unsent: cfg.Unsent, Stop: r.stop,
		Plan: cfg.Plan, Target: r.names.Target, Unrecorded: cfg.Unrecorded, KeepInput: cfg.KeepInput, Instance: cfg.Instance, Clock: cfg.Clock,
	})
	r.chains = chain.New(chain.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Loader: r.loader, Finisher: r.finisher, Existing: r.existing, Names: r.names,
		Catalog: r.catalog, Pending: r.pending, Caller: caller, Clock: cfg.Clock, ReadyTimeout: cfg.ReadyTimeout,
	}, cfg.Actions)
}

// prepare makes what restores definitions and namespaces.
func (r *run) prepare() {
	cfg := r.cfg
	poller := delay.Poller{Clock: cfg.Clock, Stop: r.stop}
	r.definitions = definitions.New(definitions.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, History: cfg.History, Loader: r.loader, Chains: r.chains, Pending: r.pending,
		Creator: r.creator, Finisher: r.finisher, Existing: r.existing, Catalog: r.catalog, Reset: r.reset, Report: r.screen.Report,
		Timeouts: r.timeouts, Poller: poller, Workers: r.workers, Clock: cfg.Clock,
	})
	r.namespaces = namespaces.New(namespaces.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Loader: r.loader, Finisher: r.finisher, Existing: r.existing, Names: r.names,
		Targets: r.targets, Timeouts: r.timeouts, Poller: poller, Workers: r.workers,
	})
}

// objects restores everything else: the last pass over them.
func (r *run) objects(ctx context.Context) error {
	cfg := r.cfg
	services := apiservice.New(apiservice.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Client: r.existing.Client, Catalog: r.catalog, Timeouts: r.timeouts,
	})
	late := webhooks.Find(ctx, webhooks.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Source: cfg.Source, Existing: r.existing, Names: r.names,
	})
	volumes := provision.New(provision.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, History: cfg.History, Loader: r.loader, Existing: r.existing, Names: r.names,
		Volumes: cfg.Volumes, Snapshotters: cfg.Snapshotters, UID: cfg.UID, Confirm: cfg.Confirm, Timeouts: r.timeouts, Stop: r.stop,
	})
	claims := csiclaim.New(csiclaim.Config{
		Plan: cfg.Plan, Recorder: cfg.Recorder, Source: cfg.Source, Catalog: r.catalog, Existing: r.existing, Volumes: cfg.Volumes,
		Snapshots: cfg.Snapshots, Defined: r.definitions.Defined, Timeouts: r.timeouts,
		Restore: restored.Restore{Server: cfg.Server, UID: cfg.UID, Labels: map[string]string{
			velerov1.LabelBackupName: velerov1.LabelValue(cfg.Backup), velerov1.LabelRestoreName: velerov1.LabelValue(cfg.Restore)}},
	})
	pauser := &pausing.Pauser{Rules: cfg.Pauses, Plan: cfg.Plan, Recorder: cfg.Recorder, Existing: r.existing, Namespaces: r.targets}
	p := &objects{
		plan: cfg.Plan, recorder: cfg.Recorder, loader: r.loader, screen: r.screen, chains: r.chains, pending: r.pending,
		namespaces: r.namespaces, services: services, finisher: r.finisher, workers: r.workers, reset: r.reset, retrier: backoff.New(cfg.Clock),
		creation: &creation{
			plan: cfg.Plan, client: r.existing.Client, creator: r.creator, finisher: r.finisher, volumes: volumes, claims: claims, pauser: pauser, hooks: r.hooks,
			webhooks: late, names: r.names, reset: r.reset, defined: r.definitions.Defined, timeouts: r.timeouts,
		},
	}
	return p.restoreAll(ctx)
}

// await waits for the claims that are filled from CSI snapshots.
func (r *run) await(ctx context.Context) error {
	a := &csiclaim.Awaiter{Recorder: r.cfg.Recorder, Existing: r.existing, Clock: r.cfg.Clock, Timeout: r.timeouts.Resource, Stop: r.stop}
	return a.Await(ctx)
}
