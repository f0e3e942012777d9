package restore

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/existing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
)

const pollEvery = 250 * time.Millisecond

var namespacesGVR = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespaces makes every target namespace exist. Those that exist are left as they are.
func (r *run) namespaces(ctx context.Context) error {
	stored := r.workers.Open(r.Plan.Of(plan.NamespaceObject))
	var first, mergedInto []int32
	for _, v := range stored {
		if _, ok := r.Plan.Rival(v); ok {
			mergedInto = append(mergedInto, v)
		} else {
			first = append(first, v)
		}
	}
	for _, nodes := range [][]int32{first, mergedInto} {
		if err := r.workers.Each(ctx, nodes, r.storedNamespace); err != nil {
			return err
		}
	}
	var bare []string
	for _, ns := range r.Plan.Namespaces() {
		if _, ok := r.Plan.NamespaceObject(ns.Source); !ok && r.targets.Lost(ns.Target) == "" {
			bare = append(bare, ns.Target)
		}
	}
	return r.workers.All(ctx, len(bare), func(int32) int64 { return 0 }, func(ctx context.Context, w delay.Waiter) *dispatch.Wait {
		return r.bareNamespace(ctx, bare[w.Vertex], w)
	})
}

// storedNamespace creates a namespace as the backup has it.
func (r *run) storedNamespace(ctx context.Context, v int32, w delay.Waiter) *dispatch.Wait {
	target := r.Plan.MapNamespace(r.Plan.Node(v).Name)
	e := r.Recorder.Begin(v)
	it, err := r.loader.Load(ctx, v)
	if err != nil {
		r.loseStored(ctx, e, v, target, err)
		return nil
	}
	it.Target.Name = target
	reset.Namespace(it.Body, target)
	owners := r.owners.References(ctx, it)
	owners.Report(e)
	failpoint.Hit("restore-runner/before-namespace")
	rival, taken := r.names.Rival(v)
	result, err := r.ensure(ctx, target, it.Body, !taken)
	if wait := w.Park(err); wait != nil {
		return wait
	}
	if err != nil {
		r.loseStored(ctx, e, v, target, err)
		return nil
	}
	if taken {
		e.Warn(fmt.Sprintf("namespaces %q and %q of the backup are both mapped to %q, which has the labels and annotations of the first",
			r.Plan.Node(rival).Name, r.Plan.Node(v).Name, target))
	}
	failpoint.Hit("restore-runner/after-namespace")
	// Of the owners, which come in the last pass, those are known that are in the cluster from
	// before.
	if !r.owners.CatchUp(ctx, e, v, &result, owners.Now) {
		return nil
	}
	r.settler.Done(ctx, e, v, result, nil, owners.Later)
	return nil
}

// loseStored is the end of a stored namespace that cannot be prepared.
func (r *run) loseStored(ctx context.Context, e *outcome.Entry, v int32, target string, err error) {
	if stop.Ending(ctx, err) {
		return
	}
	r.lose(e, target, err)
	r.settler.Fail(ctx, e, v, err)
}

// bareNamespace creates a namespace the backup has no object of.
func (r *run) bareNamespace(ctx context.Context, target string, w delay.Waiter) *dispatch.Wait {
	body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": target}}
	_, err := r.ensure(ctx, target, body, false)
	if wait := w.Park(err); wait != nil {
		return wait
	}
	if err != nil && !stop.Ending(ctx, err) {
		e := r.Recorder.Begin(outcome.General)
		r.lose(e, target, err)
		e.Error(fmt.Sprintf("namespace %q: %v", target, err))
		e.Commit()
	}
	return nil
}

// prepareNamespace prepares the namespace of an object that is restored only because an action
// asked for it, if nothing else is restored there.
func (r *run) prepareNamespace(ctx context.Context, v int32) {
	if r.Plan.Prepared(v) {
		return
	}
	target := r.Plan.Target(v)
	r.mu.Lock()
	once, ok := r.onDemand[target]
	if !ok {
		once = &sync.Once{}
		r.onDemand[target] = once
	}
	r.mu.Unlock()
	once.Do(func() {
		node, stored := r.Plan.NamespaceObject(r.Plan.Source(v))
		switch {
		case !stored:
			r.poller.Finish(ctx, func(w delay.Waiter) *dispatch.Wait { return r.bareNamespace(ctx, target, w) })
		case r.Recorder.Action(node) == "":
			r.Recorder.Ask(node)
			r.poller.Finish(ctx, func(w delay.Waiter) *dispatch.Wait { return r.storedNamespace(ctx, node, w) })
		}
	})
}

// lose notes that nothing can be restored into a namespace.
func (r *run) lose(e *outcome.Entry, target string, err error) {
	e.Lost(target, err.Error())
	r.targets.Lose(target, err.Error())
}

// ensure creates a namespace unless it exists. One of that name that is being deleted is a delay.
func (r *run) ensure(ctx context.Context, name string, body map[string]any, stored bool) (apply.Result, error) {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		return apply.Result{}, fmt.Errorf("not a namespace name: %s", msgs[0])
	}
	target := apply.Target{GVR: namespacesGVR, Name: name}
	for {
		uid, err := r.client.Create(ctx, target, body)
		if err == nil {
			r.targets.Create(name)
			return apply.Result{Action: apply.Created, UID: uid, Fresh: true}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return apply.Result{}, r.timeouts.Of(err)
		}
		raw, err := r.client.Get(ctx, target)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return apply.Result{}, err
		}
		live, err := existing.Decode(raw)
		if err != nil {
			return apply.Result{}, err
		}
		if live.Metadata.DeletionTimestamp != nil {
			return apply.Result{}, r.timeouts.Deleted()
		}
		return r.existingNamespace(live, stored), nil
	}
}

// existingNamespace is the outcome of a namespace that is there: this restore's work if its field
// manager says so. An earlier holder made it then, or a request that failed.
func (r *run) existingNamespace(l *existing.Object, stored bool) apply.Result {
	if stored && l.MadeBy(r.manager) {
		return apply.Result{Action: apply.Created, UID: l.Metadata.UID, Fresh: true}
	}
	return apply.Result{Action: apply.Skipped, UID: l.Metadata.UID}
}
