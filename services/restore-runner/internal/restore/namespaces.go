package restore

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/flight"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// namespacesGVR is that of namespaces.
var namespacesGVR = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespacesConfig is what namespaces are created with.
type namespacesConfig struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	Loader   *object.Loader
	Creator  *flight.Creator
	Finisher *flight.Finisher
	Existing *object.LiveReader
	Names    *object.Names
	// Targets receives the namespaces that this process created, and those that cannot be prepared.
	Targets  *object.TargetNamespaces
	Timeouts object.DelayTimeouts
	Poller   object.Poller
	Workers  *flight.WorkerPool
}

// namespaceCreator creates the namespaces of a restore. Safe for concurrent use.
type namespaceCreator struct {
	namespacesConfig

	mu       sync.Mutex
	onDemand map[string]*sync.Once // namespaces that are prepared only because actions asked for objects in them
}

// newNamespaceCreator returns a creator.
func newNamespaceCreator(cfg namespacesConfig) *namespaceCreator {
	return &namespaceCreator{namespacesConfig: cfg, onDemand: map[string]*sync.Once{}}
}

// CreateAll makes every target namespace exist.
func (c *namespaceCreator) CreateAll(ctx context.Context) error {
	stored := c.Workers.Open(c.Plan.Of(plan.NamespaceObject))
	var first, mergedInto []int32
	for _, v := range stored {
		if _, ok := c.Plan.RivalBefore(v); ok {
			mergedInto = append(mergedInto, v)
		} else {
			first = append(first, v)
		}
	}
	for _, nodes := range [][]int32{first, mergedInto} {
		if err := c.Workers.Each(ctx, nodes, c.createStored); err != nil {
			return err
		}
	}
	var bare []string
	for _, ns := range c.Plan.Namespaces() {
		if _, ok := c.Plan.NamespaceObject(ns.Source); !ok && c.Targets.Lost(ns.Target) == "" {
			bare = append(bare, ns.Target)
		}
	}
	named := func(v int32) (int32, string) { return outcome.General, namespaceText(bare[v]) }
	return c.Workers.All(ctx, len(bare), named, func(int32) int64 { return 0 }, func(ctx context.Context, w object.DelayWaiter) *dispatch.Wait {
		return c.createBare(ctx, bare[w.Vertex], w)
	})
}

func namespaceText(name string) string { return "namespace " + name }

// createStored creates a namespace as the backup has it.
func (c *namespaceCreator) createStored(ctx context.Context, v int32, w object.DelayWaiter) *dispatch.Wait {
	target := c.Plan.MapNamespace(c.Plan.Name(v))
	e := c.Recorder.Begin(v)
	o, err := c.Loader.Load(ctx, v)
	if err != nil {
		c.failStored(ctx, e, v, target, err)
		return nil
	}
	o.Target.Name = target
	apply.ResetNamespace(o.Body, target)
	owners := c.Finisher.Owners.References(ctx, o)
	owners.Report(e)
	if len(owners.Now) > 0 {
		o.Metadata()["ownerReferences"] = owners.Now
	}
	failpoint.Hit("restore-runner/before-namespace")
	rival, taken := c.Names.Rival(v)
	result, err := c.ensureNamespace(ctx, e, c.newRequest(o, taken))
	if wait := w.Wait(err); wait != nil {
		return wait
	}
	if err != nil {
		c.failStored(ctx, e, v, target, err)
		return nil
	}
	if taken {
		e.Warn(fmt.Sprintf("namespaces %q and %q of the backup are both mapped to %q, which has the labels and annotations of the first",
			c.Plan.Name(rival), c.Plan.Name(v), target))
	}
	failpoint.Hit("restore-runner/after-namespace")
	// Of the owners, which come in the last pass, those are known that are in the cluster from
	// before.
	if !c.Creator.Complete(ctx, e, o, &result) || !c.Finisher.Owners.CatchUp(ctx, e, v, &result, owners.Now) {
		return nil
	}
	c.Finisher.Done(ctx, e, v, result, owners.Now, owners.Later)
	return nil
}

// newRequest returns what brings a stored Namespace into the cluster. Its spec counts at creation alone.
func (c *namespaceCreator) newRequest(o *object.Object, taken bool) apply.Request {
	r := c.Creator.Request(o, "Namespace")
	r.CreateOnly = taken || !c.Plan.NamespaceSelected(o.Node)
	normalize := r.Normalize
	r.Normalize = func(live map[string]any) {
		normalize(live)
		delete(live, "spec")
		if spec, ok := o.Body["spec"]; ok {
			live["spec"] = spec
		}
	}
	return r
}

// failStored is the end of a stored namespace that cannot be prepared.
func (c *namespaceCreator) failStored(ctx context.Context, e *outcome.Entry, v int32, target string, err error) {
	if object.IsEnding(ctx, err) {
		return
	}
	c.recordLost(e, target, err)
	c.Finisher.Fail(ctx, e, v, err)
}

// createBare creates a namespace the backup has no object of.
func (c *namespaceCreator) createBare(ctx context.Context, target string, w object.DelayWaiter) *dispatch.Wait {
	body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": target}}
	_, err := c.ensureNamespace(ctx, nil, apply.Request{Target: apply.Target{GVR: namespacesGVR, Name: target}, Kind: "Namespace", Object: body, CreateOnly: true})
	if wait := w.Wait(err); wait != nil {
		return wait
	}
	if err != nil && !object.IsEnding(ctx, err) {
		e := c.Recorder.Begin(outcome.General)
		c.recordLost(e, target, err)
		e.Error(fmt.Sprintf("namespace %q: %v", target, err))
		e.Commit()
	}
	return nil
}

// Prepare prepares the namespace of an object that is restored only because an action
// asked for it, if nothing else is restored there.
func (c *namespaceCreator) Prepare(ctx context.Context, v int32) {
	if c.Plan.Prepared(v) {
		return
	}
	target := c.Plan.Target(v)
	c.mu.Lock()
	once, ok := c.onDemand[target]
	if !ok {
		once = &sync.Once{}
		c.onDemand[target] = once
	}
	c.mu.Unlock()
	once.Do(func() {
		node, stored := c.Plan.NamespaceObject(c.Plan.Source(v))
		switch {
		case !stored:
			c.Poller.Finish(ctx, namespaceText(target), func(w object.DelayWaiter) *dispatch.Wait { return c.createBare(ctx, target, w) })
		case c.Recorder.Action(node) == "":
			c.Recorder.Ask(node)
			c.Poller.Finish(ctx, namespaceText(target), func(w object.DelayWaiter) *dispatch.Wait { return c.createStored(ctx, node, w) })
		}
	})
}

// recordLost notes that nothing can be restored into a namespace.
func (c *namespaceCreator) recordLost(e *outcome.Entry, target string, err error) {
	e.Lost(target, err.Error())
	c.Targets.Lose(target, err.Error())
}

// ensureNamespace creates a namespace unless it exists. One of that name that is being deleted is a delay. What
// has the field manager of this restore was created by it: an earlier holder made it then, or a request
// that failed.
func (c *namespaceCreator) ensureNamespace(ctx context.Context, e *outcome.Entry, r apply.Request) (apply.Result, error) {
	if msgs := validation.IsDNS1123Label(r.Name); len(msgs) > 0 {
		return apply.Result{}, fmt.Errorf("not a namespace name: %s", msgs[0])
	}
	r.Resumed = true
	result := c.Existing.Client.Apply(ctx, r)
	if refusalOf(&result) != nil {
		result = c.applyWithout(ctx, e, r, result)
	}
	switch {
	case result.Err != nil:
		return apply.Result{}, c.Timeouts.Of(result.Err)
	case result.Action == apply.Created && result.UID == "":
		return apply.Result{}, c.Timeouts.Deleted()
	case result.Action == apply.Created && result.Version != "":
		c.Targets.Create(r.Name)
	}
	return result, nil
}
