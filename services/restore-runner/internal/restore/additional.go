package restore

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// await finds what has to come before the object goes on after an action; nil is nothing.
func (t *chainRun) await(ctx context.Context, b *bound, result *action.RestoreResult) *dispatch.Wait {
	if len(result.Additional) == 0 && !result.Wait {
		return nil
	}
	name := b.Action.Name()
	if !t.parks {
		t.parked.entry.Warn("action " + name + ": additional items of a definition are not waited for, and not restored unless they are selected")
		return nil
	}
	t.parked.additional, t.parked.probe = nil, nil
	wait := &dispatch.Wait{}
	for _, item := range result.Additional {
		node, ok := t.find(item)
		if !ok {
			t.missing(name, item)
			node = -1
		} else if t.Recorder.Action(node) == "" {
			t.Recorder.Ask(node)
			wait.On = append(wait.On, node)
		}
		t.parked.additional = append(t.parked.additional, additional{item, node})
	}
	if readiness, ok := b.Action.(action.Readiness); ok && result.Wait {
		t.parked.probe = &probe{node: t.it.node, action: name, readiness: readiness, timeout: result.WaitTimeout}
		if t.parked.probe.timeout == 0 {
			t.parked.probe.timeout = t.ReadyTimeout
		}
	}
	if len(wait.On) > 0 {
		return wait
	}
	t.parked.wait = wait
	return t.comeBack(ctx)
}

// find returns the node that an action means, by the name of its resource in the backup or any that
// the cluster knows.
func (t *chainRun) find(item action.Item) (int32, bool) {
	node, ok := t.Plan.Find(item.GroupResource.String(), item.Namespace, item.Name)
	if !ok {
		if gr, _, known := t.catalog.Load().Resolve(item.GroupResource.String()); known {
			node, ok = t.Plan.Find(gr.String(), item.Namespace, item.Name)
		}
	}
	if ok && t.Plan.Reserve(node) && t.Plan.Class(node) != plan.Other {
		return 0, false // a namespace nothing is restored to
	}
	return node, ok
}

// missing reports an additional item that is not restored.
func (t *chainRun) missing(name string, item action.Item) {
	what := fmt.Sprintf("additional item %s, which action %s asks for, is ", item, name)
	switch {
	case !t.Plan.Admits(item.GroupResource, item.Namespace):
		t.parked.entry.Info(what + "left out by the restore's filters")
	case early[item.GroupResource]:
		t.parked.entry.Warn(what + "not in the backup or not selected: namespaces and definitions come before all actions")
	default:
		t.parked.entry.Warn(what + "not in the backup")
	}
}

// early are restored before the last pass, and only in it actions ask for what is not selected.
var early = map[schema.GroupResource]bool{
	{Resource: "namespaces"}: true, {Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}: true,
}

// comeBack notes what became of a wait, and returns what there is to wait for next.
func (t *chainRun) comeBack(ctx context.Context) *dispatch.Wait {
	s := t.parked
	if s.wait == nil {
		return nil
	}
	cut, yielded := s.wait.Cut, s.wait.Yield
	s.wait = nil
	if yielded {
		return nil // it was not an action that made it wait
	}
	for _, node := range cut {
		t.Recorder.Owe(node)
		s.entry.Warn(fmt.Sprintf("additional item %s %s, which action %s asks for, waits for this object: restored before it",
			t.Plan.Kind(node), t.Plan.Node(node).Name, t.actions[s.next-1].Action.Name()))
	}
	q := s.probe
	switch {
	case q == nil:
		return nil
	case q.asked:
		s.probe = nil
		if q.err != nil {
			s.entry.Error(q.err.Error())
		}
		return nil
	}
	q.items = t.existing(ctx, s.additional)
	if len(q.items) == 0 && len(cut) > 0 {
		s.probe = nil // it was to wait for what waits for it
		return nil
	}
	q.asked = true
	t.prober.put(ctx, q)
	return &dispatch.Wait{Wake: true}
}

// existing returns those additional items that are in the cluster.
func (t *chainRun) existing(ctx context.Context, all []additional) []action.Item {
	var out []action.Item
	for _, a := range all {
		if t.exists(ctx, a) {
			out = append(out, a.item)
		}
	}
	return out
}

// exists reports whether an additional item is in the cluster. What was created or updated is not
// asked for again.
func (t *chainRun) exists(ctx context.Context, a additional) bool {
	var target apply.Target
	if a.node >= 0 {
		if done := t.Recorder.Action(a.node); done == apply.Created || done == apply.Updated {
			return true
		}
		target = t.present(a.node)
	} else {
		served, ok := t.catalog.Load().Lookup(a.item.GroupResource)
		if !ok {
			return false
		}
		target = apply.Target{GVR: served.GVR(), Namespace: t.Plan.MapNamespace(a.item.Namespace), Name: a.item.Name}
	}
	_, err := t.client.Get(ctx, target)
	return err == nil
}
