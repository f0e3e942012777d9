package actions

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// awaitAdditional returns the wait for the additional items of an action; nil is none.
func (r *objectRun) awaitAdditional(ctx context.Context, b *boundAction, result *action.RestoreResult) *dispatch.Wait {
	if len(result.Additional) == 0 && !result.Wait {
		return nil
	}
	name := b.Action.Name()
	if !r.waits {
		r.state.Entry.Warn("action " + name + ": additional items of a definition are not waited for, and not restored unless they are selected")
		return nil
	}
	r.state.Additional, r.state.Probe = nil, nil
	wait := &dispatch.Wait{}
	for _, item := range result.Additional {
		node, ok := r.findNode(item)
		if !ok {
			r.reportMissing(name, item)
			node = -1
		} else if r.chains.Recorder.Action(node) == "" {
			r.chains.Recorder.Ask(node)
			wait.On = append(wait.On, node)
		}
		r.state.Additional = append(r.state.Additional, Additional{Item: item, Node: node})
	}
	if ready, ok := b.Action.(action.Readiness); ok && result.Wait {
		r.state.Probe = &Probe{Node: r.o.Node, Action: name, Readiness: ready, Timeout: result.WaitTimeout}
		if r.state.Probe.Timeout == 0 {
			r.state.Probe.Timeout = r.chains.ReadyTimeout
		}
	}
	if len(wait.On) > 0 {
		return wait
	}
	r.state.Wait = wait
	return r.concludeWait(ctx)
}

// findNode returns the node that an action means, by the name of its resource in the backup or any name
// that the cluster serves.
func (r *objectRun) findNode(item action.Item) (int32, bool) {
	node, ok := r.chains.Plan.Find(item.GroupResource.String(), item.Namespace, item.Name)
	if !ok {
		if gr, known := r.chains.Catalog.Resolve(item.GroupResource.String()); known {
			node, ok = r.chains.Plan.Find(gr.String(), item.Namespace, item.Name)
		}
	}
	if ok && r.chains.Plan.Reserve(node) && r.chains.Plan.Class(node) != plan.Other {
		return 0, false // a namespace nothing is restored to
	}
	return node, ok
}

// reportMissing reports an additional item that is not restored.
func (r *objectRun) reportMissing(name string, item action.Item) {
	what := fmt.Sprintf("additional item %s, which action %s asks for, is ", item, name)
	switch {
	case !r.chains.Plan.Admits(item.GroupResource, item.Namespace):
		r.state.Entry.Info(what + "left out by the restore's filters")
	case earlyResources[item.GroupResource]:
		r.state.Entry.Warn(what + "not in the backup or not selected: namespaces and definitions come before all actions")
	default:
		r.state.Entry.Warn(what + "not in the backup")
	}
}

// earlyResources are restored before the last pass, and only in it actions ask for what is not selected.
var earlyResources = map[schema.GroupResource]bool{
	{Resource: "namespaces"}: true, {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
}

// concludeWait notes what became of a wait, and returns what there is to wait for next.
func (r *objectRun) concludeWait(ctx context.Context) *dispatch.Wait {
	s := r.state
	if s.Wait == nil {
		return nil
	}
	cut, yielded := s.Wait.Cut, s.Wait.Yield
	s.Wait = nil
	if yielded {
		return nil // it was not an action that made it wait
	}
	for _, node := range cut {
		r.chains.Recorder.RequestDurably(node)
		s.Entry.Warn(fmt.Sprintf("additional item %s %s, which action %s asks for, waits for this object: restored before it",
			r.chains.Plan.Kind(node), r.chains.Plan.Name(node), r.actions[s.Next-1].Action.Name()))
	}
	q := s.Probe
	switch {
	case q == nil:
		return nil
	case q.Added:
		s.Probe = nil
		q.hide()
		if q.Err != nil {
			s.Entry.Error(q.Err.Error())
		}
		return nil
	}
	q.Items = r.existingItems(ctx, s.Additional)
	if len(q.Items) == 0 && len(cut) > 0 {
		s.Probe = nil // it was to wait for what waits for it
		return nil
	}
	q.Added = true
	shown := []outcome.Wait{{Node: q.Node, Since: r.chains.Clock.Now(), Reason: fmt.Sprintf("waits until action %s reports that its additional items are ready", q.Action)}}
	q.hide = r.chains.Recorder.ShowWaits(func() []outcome.Wait { return shown })
	r.chains.prober.Add(ctx, q)
	return &dispatch.Wait{Wake: true}
}

// existingItems returns those additional items that are in the cluster.
func (r *objectRun) existingItems(ctx context.Context, all []Additional) []action.Item {
	var out []action.Item
	for _, a := range all {
		if r.itemExists(ctx, a) {
			out = append(out, a.Item)
		}
	}
	return out
}

// itemExists reports whether an additional item is in the cluster. What was created or updated is not
// asked for again.
func (r *objectRun) itemExists(ctx context.Context, a Additional) bool {
	var target apply.Target
	if a.Node >= 0 {
		if done := r.chains.Recorder.Action(a.Node); done == apply.Created || done == apply.Updated {
			return true
		}
		target = r.chains.Names.Target(a.Node)
	} else {
		served, ok := r.chains.Catalog.Lookup(a.Item.GroupResource)
		if !ok {
			return false
		}
		target = apply.Target{GVR: served.GVR(), Namespace: r.chains.Plan.MapNamespace(a.Item.Namespace), Name: a.Item.Name}
	}
	_, err := r.chains.Existing.Client.Get(ctx, target)
	return err == nil
}
