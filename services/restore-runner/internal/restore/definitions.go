package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/actions"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/flight"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// discoveryPatience is how long an established kind may take to appear in discovery.
const discoveryPatience = 30 * time.Second

// definitionsConfig is what definitions are restored with.
type definitionsConfig struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	History  *outcome.History
	Loader   *object.Loader
	Chains   *actions.Chains
	Pending  *actions.PendingStore
	Creator  *flight.Creator
	Finisher *flight.Finisher
	Existing *object.LiveReader
	Catalog  *object.Catalog
	Reset    *apply.ResetOptions
	// Report reports what an object requests and is not done.
	Report   func(*outcome.Entry, *object.Object)
	Timeouts object.DelayTimeouts
	Poller   object.Poller
	Workers  *flight.WorkerPool
	Clock    clock.PassiveClock
	// DryRun, if set, has kinds count as served that would be defined.
	DryRun *apply.DryRun
}

// definitionRestorer restores the definitions of a restore. Safe for concurrent use.
type definitionRestorer struct {
	definitionsConfig

	mu      sync.Mutex
	defined map[schema.GroupResource]bool
}

// newDefinitionRestorer returns a restorer that takes over which definitions an earlier holder of the restore saw
// established.
func newDefinitionRestorer(cfg definitionsConfig) *definitionRestorer {
	r := &definitionRestorer{definitionsConfig: cfg, defined: map[schema.GroupResource]bool{}}
	for _, v := range cfg.History.Served {
		// The API server accepts a definition only under the name <plural>.<group>.
		plural, group, _ := strings.Cut(cfg.Plan.Name(v), ".")
		r.defined[schema.GroupResource{Group: group, Resource: plural}] = true
	}
	return r
}

// Defined reports that this restore defined a kind. It is called after RestoreAll.
func (r *definitionRestorer) Defined(gr schema.GroupResource) bool { return r.defined[gr] }

// RestoreAll restores the definitions and waits until the server serves their kinds.
func (r *definitionRestorer) RestoreAll(ctx context.Context) error {
	nodes := r.Plan.Of(plan.Definition)
	if len(nodes) == 0 {
		return nil
	}
	if err := r.Workers.Each(ctx, r.Workers.Open(nodes), r.restoreDefinition); err != nil {
		return err
	}
	if len(r.defined) == 0 || r.DryRun != nil {
		return nil
	}
	defer failpoint.Hit("restore-runner/kinds-discovered")
	return r.awaitDiscovery(ctx)
}

// restoreDefinition restores one definition and waits for it.
func (r *definitionRestorer) restoreDefinition(ctx context.Context, v int32, w object.DelayWaiter) *dispatch.Wait {
	s := r.Pending.Resume(v, r.Recorder)
	e := s.Entry
	o, err := r.Loader.Load(ctx, v)
	if err != nil {
		r.Finisher.Fail(ctx, e, v, err)
		return nil
	}
	if s.Wait == nil {
		r.Report(e, o)
	}
	apply.NormalizeObject(o.Body, r.Plan.Kind(v).GroupResource(), r.Reset)
	if _, over := r.Chains.Follow(ctx, o, s, false); over {
		return nil
	}
	apply.PlaceObject(o.Body, "", r.Reset)
	mark := e.Mark()
	owners := r.Finisher.Owners.References(ctx, o)
	owners.Report(e)
	if len(owners.Now) > 0 {
		o.Metadata()["ownerReferences"] = owners.Now
	}
	o.Tried = s.Tried
	result := r.applyDefinition(ctx, o)
	failpoint.Hit("restore-runner/definition-created")
	var wait *dispatch.Wait
	if wait, result.Err = r.Pending.Delay(ctx, v, s, w, result.Err, mark); wait != nil {
		return wait
	}
	if !r.Creator.Complete(ctx, e, o, &result) || !r.Finisher.Owners.CatchUp(ctx, e, v, &result, owners.Now) {
		return nil
	}
	if result.Action == apply.Created || result.Action == apply.Updated {
		if r.DryRun != nil {
			r.assumeServed(o)
		} else if !r.awaitEstablished(ctx, e, o) {
			return nil
		}
		failpoint.Hit("restore-runner/definition-established")
	}
	r.Finisher.Done(ctx, e, v, result, owners.Now, owners.Later)
	return nil
}

// applyDefinition creates or updates; a definition of that name that is going away, with all its objects, is
// a delay.
func (r *definitionRestorer) applyDefinition(ctx context.Context, o *object.Object) apply.Result {
	raw, err := r.Existing.Client.Get(ctx, o.Target)
	if err != nil && !apierrors.IsNotFound(err) {
		return apply.Result{Err: err}
	}
	if err == nil && r.DryRun == nil {
		live, err := object.DecodeLive(raw)
		switch {
		case err != nil:
			return apply.Result{Err: err}
		case live.Metadata.DeletionTimestamp != nil:
			return apply.Result{Err: r.Timeouts.Deleted()}
		}
	}
	result := r.Existing.Client.Apply(ctx, r.Creator.Request(o, "CustomResourceDefinition"))
	result.Err = r.Timeouts.Of(result.Err)
	return result
}

// awaitEstablished waits until the definition's names are accepted and its objects can be stored. False
// when the restore ends here before.
func (r *definitionRestorer) awaitEstablished(ctx context.Context, e *outcome.Entry, o *object.Object) bool {
	spec, ok := o.Body["spec"].(map[string]any)
	if !ok {
		return true
	}
	names, ok := spec["names"].(map[string]any)
	if !ok {
		return true
	}
	start := r.Clock.Now()
	defer r.showWait(o.Node, "waits until the API server has established it")()
	for {
		ready, err := r.isEstablished(ctx, o.Target)
		if err == nil && ready {
			e.Served()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.defined[schema.GroupResource{Group: object.TextAt(spec, "group"), Resource: object.TextAt(names, "plural")}] = true
			return true
		}
		if err == nil {
			err = errors.New("its conditions do not say so")
		}
		if ctx.Err() != nil {
			return false
		}
		if r.Clock.Since(start) > r.Timeouts.Resource {
			e.Error(fmt.Sprintf("not established after %s: %v", r.Timeouts.Resource, err))
			return true
		}
		if r.Poller.Pause(ctx) != nil {
			return false
		}
	}
}

// assumeServed has the catalog name the kind of a definition that would be created or updated.
func (r *definitionRestorer) assumeServed(o *object.Object) {
	spec := object.MapAt(o.Body, "spec")
	names := object.MapAt(spec, "names")
	gr := schema.GroupResource{Group: object.TextAt(spec, "group"), Resource: object.TextAt(names, "plural")}
	version := ""
	for _, entry := range object.ListAt(spec, "versions") {
		v, ok := entry.(map[string]any)
		if !ok || v["served"] != true {
			continue
		}
		name := object.TextAt(v, "name")
		r.DryRun.AddKind(gr.WithVersion(name))
		if version == "" || v["storage"] == true {
			version = name
		}
	}
	r.Catalog.Assume(resource.Resource{
		Kind: schema.GroupVersionKind{Group: gr.Group, Version: version, Kind: object.TextAt(names, "kind")}, Name: gr.Resource,
		Namespaced: object.TextAt(spec, "scope") == "Namespaced", Custom: true,
	})
}

// showWait shows what an object, or the restore, waits for from now on, until hide is called.
func (r *definitionRestorer) showWait(node int32, reason string) (hide func()) {
	since := r.Clock.Now()
	return r.Recorder.ShowWaits(func() []outcome.Wait { return []outcome.Wait{{Node: node, Reason: reason, Since: since}} })
}

func (r *definitionRestorer) isEstablished(ctx context.Context, t apply.Target) (bool, error) {
	raw, err := r.Existing.Client.Get(ctx, t)
	if err != nil {
		return false, err
	}
	live, err := object.DecodeLive(raw)
	if err != nil {
		return false, err
	}
	return live.True("Established", "NamesAccepted"), nil
}

// awaitDiscovery repeats the discovery until it lists every kind that was just established.
func (r *definitionRestorer) awaitDiscovery(ctx context.Context) error {
	start := r.Clock.Now()
	defer r.showWait(outcome.General, "waits until discovery names every kind whose definition was restored")()
	for {
		if r.Catalog.Discover(ctx) == nil && r.allServed() {
			r.recordDiscovery("")
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.Clock.Since(start) > discoveryPatience {
			r.recordDiscovery("discovery does not name every kind whose definition was restored; objects of the others will fail")
			return nil
		}
		if err := r.Poller.Pause(ctx); err != nil {
			return err
		}
	}
}

// recordDiscovery records, once per restore, that definitions are done with.
func (r *definitionRestorer) recordDiscovery(warning string) {
	if r.History.Passed(outcome.StepDefinitions) {
		return
	}
	e := r.Recorder.Begin(outcome.General)
	if warning != "" {
		e.Warn(warning)
	}
	e.Step(outcome.StepDefinitions)
	e.Commit()
}

func (r *definitionRestorer) allServed() bool {
	for gr := range r.defined {
		if _, ok := r.Catalog.Lookup(gr); !ok {
			return false
		}
	}
	return true
}
