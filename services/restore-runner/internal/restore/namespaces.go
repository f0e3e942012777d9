package restore

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		if err := c.Workers.Each(ctx, nodes, c.stored); err != nil {
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
		return c.bare(ctx, bare[w.Vertex], w)
	})
}

func namespaceText(name string) string { return "namespace " + name }

// stored creates a namespace as the backup has it.
func (c *namespaceCreator) stored(ctx context.Context, v int32, w object.DelayWaiter) *dispatch.Wait {
	target := c.Plan.MapNamespace(c.Plan.Name(v))
	e := c.Recorder.Begin(v)
	o, err := c.Loader.Load(ctx, v)
	if err != nil {
		c.loseStored(ctx, e, v, target, err)
		return nil
	}
	o.Target.Name = target
	apply.ResetNamespace(o.Body, target)
	owners := c.Finisher.Owners.References(ctx, o)
	owners.Report(e)
	failpoint.Hit("restore-runner/before-namespace")
	rival, taken := c.Names.Rival(v)
	result, err := c.ensure(ctx, target, o.Body, !taken)
	if wait := w.Wait(err); wait != nil {
		return wait
	}
	if err != nil {
		c.loseStored(ctx, e, v, target, err)
		return nil
	}
	if taken {
		e.Warn(fmt.Sprintf("namespaces %q and %q of the backup are both mapped to %q, which has the labels and annotations of the first",
			c.Plan.Name(rival), c.Plan.Name(v), target))
	}
	failpoint.Hit("restore-runner/after-namespace")
	// Of the owners, which come in the last pass, those are known that are in the cluster from
	// before.
	if !c.Finisher.Owners.CatchUp(ctx, e, v, &result, owners.Now) {
		return nil
	}
	c.Finisher.Done(ctx, e, v, result, nil, owners.Later)
	return nil
}

// loseStored is the end of a stored namespace that cannot be prepared.
func (c *namespaceCreator) loseStored(ctx context.Context, e *outcome.Entry, v int32, target string, err error) {
	if object.IsEnding(ctx, err) {
		return
	}
	c.lose(e, target, err)
	c.Finisher.Fail(ctx, e, v, err)
}

// bare creates a namespace the backup has no object of.
func (c *namespaceCreator) bare(ctx context.Context, target string, w object.DelayWaiter) *dispatch.Wait {
	body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": target}}
	_, err := c.ensure(ctx, target, body, false)
	if wait := w.Wait(err); wait != nil {
		return wait
	}
	if err != nil && !object.IsEnding(ctx, err) {
		e := c.Recorder.Begin(outcome.General)
		c.lose(e, target, err)
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
			c.Poller.Finish(ctx, namespaceText(target), func(w object.DelayWaiter) *dispatch.Wait { return c.bare(ctx, target, w) })
		case c.Recorder.Action(node) == "":
			c.Recorder.Ask(node)
			c.Poller.Finish(ctx, namespaceText(target), func(w object.DelayWaiter) *dispatch.Wait { return c.stored(ctx, node, w) })
		}
	})
}

// lose notes that nothing can be restored into a namespace.
func (c *namespaceCreator) lose(e *outcome.Entry, target string, err error) {
	e.Lost(target, err.Error())
	c.Targets.Lose(target, err.Error())
}

// ensure creates a namespace unless it exists. One of that name that is being deleted is a delay.
func (c *namespaceCreator) ensure(ctx context.Context, name string, body map[string]any, stored bool) (apply.Result, error) {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		return apply.Result{}, fmt.Errorf("not a namespace name: %s", msgs[0])
	}
	target := apply.Target{GVR: namespacesGVR, Name: name}
	for {
		uid, err := c.Existing.Client.Create(ctx, target, body)
		if err == nil {
			c.Targets.Create(name)
			return apply.Result{Action: apply.Created, UID: uid, Fresh: true}, nil
		}
		refused := err
		if !apply.MayExist(refused) {
			return apply.Result{}, c.Timeouts.Of(refused)
		}
		raw, err := c.Existing.Client.Get(ctx, target)
		switch {
		case err == nil:
		case !apierrors.IsAlreadyExists(refused):
			return apply.Result{}, c.Timeouts.Of(refused) // the namespace is not there, or cannot be looked at
		case apierrors.IsNotFound(err):
			continue
		default:
			return apply.Result{}, err
		}
		live, err := object.DecodeLive(raw)
		if err != nil {
			return apply.Result{}, err
		}
		if live.Metadata.DeletionTimestamp != nil {
			return apply.Result{}, c.Timeouts.Deleted()
		}
		return c.existing(live, stored), nil
	}
}

// existing is the outcome of an existing namespace: created by this restore if it has its field
// manager. An earlier holder made it then, or a request that failed.
func (c *namespaceCreator) existing(live *object.LiveObject, stored bool) apply.Result {
	if stored && live.MadeBy(c.Existing.Manager) {
		return apply.Result{Action: apply.Created, UID: live.Metadata.UID, Fresh: true}
	}
	return apply.Result{Action: apply.Skipped, UID: live.Metadata.UID}
}
