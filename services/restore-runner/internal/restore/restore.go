package restore

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/parking"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pause"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/apiservice"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/create"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/existing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/namespaces"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/naming"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/owners"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/parked"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/pausing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/provision"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/readiness"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/screen"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/served"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/settle"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/target"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/webhooks"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/workers"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/volume"
)

// What callers give to a restore.
type (
	// Source reads the bodies of items.
	Source = object.Source
	// Snapshotters opens the snapshotters of VolumeSnapshotLocations.
	Snapshotters = provision.Snapshotters
)

// Config is one restore.
type Config struct {
	// Backup and Restore are the names for the labels.
	Backup, Restore string
	// UID is the Restore's.
	UID      types.UID
	Spec     *velerov1.RestoreSpec
	Plan     *plan.Plan
	Source   Source
	Volumes  *volume.Decisions
	Catalog  *resource.Catalog
	Recorder *outcome.Recorder
	REST     *rest.Config
	Clock    clock.WithTicker
	// History is what earlier holders left. Objects with an outcome in the recorder are not touched
	// again.
	History *outcome.History
	// Confirm is called before each change of the cluster and each Execute of an action, which do
	// not take place after an error. Nil allows all.
	Confirm func(ctx context.Context) error
	// Stop, when closed, keeps further objects from being begun; Run returns after those in flight.
	Stop <-chan struct{}
	// TerminatingTimeout is how long a namespace, definition or volume of the same name may take to
	// go away.
	TerminatingTimeout time.Duration
	// ResourceTimeout is how long a definition may take to be served.
	ResourceTimeout time.Duration
	// Actions are put every object they match, one after the other in this order.
	Actions []action.Bound[action.RestoreItem]
	// Collateral tells of an action's error that the call may have failed because of another one,
	// which took the process of both along: the object is put to the action again then, or the
	// question repeated. Nil is always false.
	Collateral func(error) bool
	// Unsent tells of an action's error that the call was certainly not made. Nil is always false.
	Unsent func(error) bool
	// Runs are the objects that are left out because they would run again.
	Runs restoreorder.Runs
	// Pauses are the rules by which objects are created paused. Resume ends that.
	Pauses pause.Rules
	// Snapshotters make volumes of snapshots. Nil makes those objects errors that need one.
	Snapshotters Snapshotters
	// Object is the Restore as actions get it. It is needed with Actions only.
	Object *action.Restore
	// ReadyTimeout is how long an object waits until its additional items are ready, where the
	// action does not say.
	ReadyTimeout time.Duration
	// Dir is an existing directory for objects that wait, once they are many. Empty keeps all of
	// them in memory.
	Dir string
}

// Run restores every object of the plan and returns when each has an outcome in the recorder, or
// with the cause of ctx's end, or with dispatch.ErrStopped. The error is never about single
// objects.
func Run(ctx context.Context, config Config) error {
	limiter := &dispatch.Limiter{}
	client, err := apply.NewClient(config.REST, apply.ManagerOf(config.UID), limiter, config.Clock, config.Confirm)
	if err != nil {
		return err
	}
	r := &run{
		Config: config, manager: apply.ManagerOf(config.UID), client: client, limiter: limiter,
		fresh:   map[schema.GroupResource]bool{},
		waiting: &parked.Store{Dir: config.Dir}, timeouts: delay.Timeouts{Terminating: config.TerminatingTimeout, Resource: config.ResourceTimeout},
		poller: delay.Poller{Clock: config.Clock, Stop: config.Stop},
	}
	r.existing = &existing.Reader{Client: client, Manager: r.manager}
	r.catalog = served.New(config.REST, config.Catalog)
	r.names = naming.New(config.Plan, config.Recorder, config.History.Names)
	r.targets = target.New(config.History.Lost)
	r.loader = &object.Loader{Source: config.Source, Plan: config.Plan, Catalog: r.catalog}
	r.owners = owners.New(owners.Config{
		Plan: r.Plan, Recorder: r.Recorder, Existing: r.existing, Names: r.names, Namespaces: r.targets,
		Limit: limiter.Limit, Stop: r.Stop, Dir: r.Dir,
	})
	defer func() { _ = r.owners.Close() }() // nothing in it is needed any more
	r.settler = &settle.Settler{Plan: r.Plan, Recorder: r.Recorder, Owners: r.owners}
	r.workers = &workers.Pool{Plan: r.Plan, Recorder: r.Recorder, Settler: r.settler, Clock: r.Clock, Limit: limiter.Limit, Stop: r.Stop}
	r.screen = &screen.Screen{Plan: r.Plan, Volumes: r.Volumes, Runs: r.Runs, Owners: r.owners}
	r.bind()
	r.reset = reset.Options{
		Backup: config.Backup, Restore: config.Restore, MapNamespace: config.Plan.MapNamespace,
		PreserveNodePorts: config.Spec.PreserveNodePorts != nil && *config.Spec.PreserveNodePorts,
		Reprovision:       config.Volumes.Reprovision,
	}
	for _, v := range config.History.Served {
		// The API server accepts a definition only under the name <plural>.<group>.
		plural, group, _ := strings.Cut(r.Plan.Node(v).Name, ".")
		r.fresh[schema.GroupResource{Group: group, Resource: plural}] = true
	}
	r.namespaces = namespaces.New(namespaces.Config{
		Plan: r.Plan, Recorder: r.Recorder, Loader: r.loader, Settler: r.settler, Existing: r.existing, Names: r.names,
		Targets: r.targets, Timeouts: r.timeouts, Poller: r.poller, Workers: r.workers,
	})
	r.volumes = provision.New(provision.Config{
		Plan: r.Plan, Recorder: r.Recorder, History: r.History, Loader: r.loader, Existing: r.existing, Names: r.names,
		Volumes: r.Volumes, Snapshotters: r.Snapshotters, UID: r.UID, Confirm: r.Confirm, Timeouts: r.timeouts, Stop: r.Stop,
	})
	r.pauser = &pausing.Pauser{Rules: r.Pauses, Plan: r.Plan, Recorder: r.Recorder, Existing: r.existing, Namespaces: r.targets}
	r.creator = &create.Creator{
		Plan: r.Plan, Recorder: r.Recorder, History: r.History, Settler: r.settler, Existing: r.existing, Names: r.names,
		PreserveNodePorts: r.reset.PreserveNodePorts, Update: r.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate,
	}
	for _, pass := range []func(context.Context) error{r.owners.Resume(config.History), r.definitions, r.namespaces.CreateAll, r.remaining} {
		if err := pass(ctx); err != nil {
			return err
		}
		if err := r.Plan.Err(); err != nil {
			return err
		}
	}
	if c := r.Recorder.Counts(); c.Done < c.Total && stop.Signal(r.Stop).Requested() {
		return dispatch.ErrStopped // what was waited for last has no outcome
	}
	return nil
}

type run struct {
	Config
	client     *apply.Client
	manager    apply.Manager
	limiter    *dispatch.Limiter
	owners     *owners.Linker
	settler    *settle.Settler
	workers    *workers.Pool
	screen     *screen.Screen
	creator    *create.Creator
	namespaces *namespaces.Creator
	volumes    *provision.Provisioner
	pauser     *pausing.Pauser
	reset      reset.Options
	timeouts   delay.Timeouts
	poller     delay.Poller

	existing *existing.Reader
	catalog  *served.Catalog
	names    *naming.Names
	targets  *target.Namespaces
	loader   *object.Loader
	// Written between passes only.
	fresh map[schema.GroupResource]bool // kinds defined by this restore

	mu sync.Mutex

	chains   map[*plan.Kind][]action.Bound[action.RestoreItem] // nil without actions
	waiting  *parked.Store
	lot      *parking.Lot         // of the last pass
	services *apiservice.Services // of the last pass
	webhooks *webhooks.Late       // of the last pass
	prober   *readiness.Prober    // nil but in the last pass, and then without actions
	retrying chan struct{}        // held by who puts an object to an action again
}

// remaining is the last pass.
func (r *run) remaining(ctx context.Context) error {
	work := dispatch.Work{
		Do: func(ctx context.Context, v int32) (wait *dispatch.Wait) {
			r.workers.Guard(ctx, v, func() { wait = r.object(ctx, v) })
			if wait == nil || !wait.Wake {
				r.lot.Passed(v)
			}
			return wait
		},
		Weight: r.workers.Weight,
		Passive: func(v int32) bool {
			return int(v) >= r.Plan.Len() || r.Plan.Class(v) != plan.Other || r.Recorder.Action(v) != ""
		},
		Reserve: func(v int32) bool { return !r.Recorder.Concerns(v) },
		Limit:   r.limiter.Limit,
		Budget:  workers.Budget,
		Stop:    r.Stop,
	}
	r.services = apiservice.New(apiservice.Config{
		Plan: r.Plan, Recorder: r.Recorder, Client: r.client, Catalog: r.catalog, Timeouts: r.timeouts,
	})
	r.webhooks = webhooks.Find(ctx, webhooks.Config{
		Plan: r.Plan, Recorder: r.Recorder, Source: r.Source, Existing: r.existing, Names: r.names,
	})
	r.lot = parking.New(r.Clock)
	defer r.lot.Start(ctx)()
	work.Woken = r.lot.Woken()
	if r.chains != nil {
		r.prober = readiness.New(r.Clock, r.Object, r.Collateral, r.lot.Woken())
		defer r.prober.Start(ctx)()
	}
	return dispatch.Run(ctx, r.Plan.Graph(), work)
}
