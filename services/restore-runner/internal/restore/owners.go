package restore

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
)

// reference reads a stored owner reference.
func reference(ref any) (map[string]any, objmeta.Owner, bool) {
	value, ok := ref.(map[string]any)
	if !ok {
		return nil, objmeta.Owner{}, false
	}
	controller, ok := value["controller"].(bool)
	return value, objmeta.Owner{
		APIVersion: decoded.Text(value, "apiVersion"), Kind: decoded.Text(value, "kind"), Name: decoded.Text(value, "name"), UID: decoded.Text(value, "uid"),
		Controller: ok && controller,
	}, true
}

// owners are an object's stored references, split into those to create it with, those to add later,
// and those that are dropped.
type owners struct {
	now   []any
	later []relink.Reference
	lost  []relink.Lost
}

// report tells what is dropped.
func (o *owners) report(e *outcome.Entry) {
	for _, l := range o.lost {
		dropped(e, l)
	}
}

// ownersOf splits an object's stored references. Those that a controller renews by adoption are
// dropped without a word.
func (r *run) ownersOf(ctx context.Context, it *item) (o owners) {
	var known []relink.Reference
	for _, ref := range it.refs {
		value, owner, ok := reference(ref)
		if !ok || r.relate(it.node, owner) == plan.Adopt {
			continue
		}
		node, ok := r.ownerNode(owner.UID)
		if !ok {
			o.lost = append(o.lost, relink.Lost{Owner: relink.Name(value), Reason: "the owner is not part of the restore"})
			continue
		}
		r.findOwner(ctx, node)
		known = append(known, relink.Reference{Node: node, Value: value})
	}
	now, later, lost := r.owners.Known(it.target.Namespace, known)
	return owners{now: append(now, it.foreignRefs()...), later: later, lost: append(o.lost, lost...)}
}

// findOwner looks once for an owner that may be in the cluster from before the restore: what it
// owns is created with the reference then. In a namespace that this restore made it cannot be.
func (r *run) findOwner(ctx context.Context, node int32) {
	if r.Plan.Class(node) != plan.Other || r.createdHere(r.Plan.Target(node)) {
		return
	}
	r.owners.Look(node, func() *relink.Owner {
		live, err := r.lookUp(ctx, r.present(node))
		if live == nil || err != nil {
			return nil // its own creation will tell
		}
		meta := decoded.Object(live, "metadata")
		if meta["deletionTimestamp"] != nil {
			return nil // it will take with it what it owns
		}
		return r.owner(node, types.UID(decoded.Text(meta, "uid")))
	})
}

// ownerNode returns the node that had this UID in the old cluster; false when it is not restored.
func (r *run) ownerNode(uid string) (int32, bool) {
	node, ok := r.Plan.Owner(uid)
	return node, ok && r.Recorder.Concerns(node)
}

// foreignRefs returns the references that actions added. A stored one that an action brought back
// is not among them: its UID is of the old cluster. What this restore wrote there since the first
// call is none of them.
func (it *item) foreignRefs() []any {
	added := decoded.List(it.metadata(), "ownerReferences")
	delete(it.metadata(), "ownerReferences")
	if it.foreignKnown || len(added) == 0 {
		it.foreignKnown = true
		return it.foreign
	}
	it.foreignKnown = true
	old := map[string]bool{"": true}
	for _, ref := range it.refs {
		if _, owner, ok := reference(ref); ok {
			old[owner.UID] = true
		}
	}
	for _, ref := range added {
		if _, owner, ok := reference(ref); ok && !old[owner.UID] {
			it.foreign = append(it.foreign, ref)
		}
	}
	return it.foreign
}

func dropped(e *outcome.Entry, l relink.Lost) {
	e.Warn(fmt.Sprintf("owner reference to %s dropped: %s", l.Owner, l.Reason))
}

// settle tells those who wait for an owner what it is now. A result without UID means that it is
// not there.
func (r *run) settle(ctx context.Context, node int32, result apply.Result) {
	if !r.Plan.Owns(node) {
		return
	}
	due := r.owners.Settle(node, r.owner(node, result.UID))
	if len(due) == 1 {
		r.patchOwner(ctx, due[0])
	} else if len(due) > 1 {
		_ = r.patchOwners(ctx, due) // those that a stop left out are recorded as owing
	}
}

// owner is a node as others refer to it, nil when it has no UID.
func (r *run) owner(node int32, uid types.UID) *relink.Owner {
	if uid == "" {
		return nil
	}
	gvk := r.Plan.Kind(node).GVK
	return &relink.Owner{
		UID: uid, APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
		Namespace: r.Plan.Target(node), Name: r.liveName(node),
	}
}

// liveName is what the object of a node is called in the cluster.
func (r *run) liveName(node int32) string {
	name := r.Plan.Node(node).Name
	switch {
	case r.Plan.Class(node) == plan.NamespaceObject:
		return r.Plan.MapNamespace(name)
	case r.Plan.Kind(node).String() == "persistentvolumes":
		return r.volumeName(name)
	}
	return name
}

// patchOwners completes the references of objects that came before their owners.
func (r *run) patchOwners(ctx context.Context, due []relink.Due) error {
	return dispatch.Run(ctx, dispatch.Independent(len(due)), dispatch.Work{
		Do:      func(ctx context.Context, i int32) *dispatch.Wait { r.patchOwner(ctx, due[i]); return nil },
		Weight:  func(int32) int64 { return 0 },
		Passive: func(int32) bool { return false },
		Limit:   r.limiter.Limit,
		Stop:    r.Stop,
	})
}

// patchOwner completes the references of one object.
func (r *run) patchOwner(ctx context.Context, due relink.Due) {
	p, err := r.owners.Patch(due)
	if err != nil {
		r.Recorder.Error(p.Node, fmt.Sprintf("metadata.ownerReferences could not be added: %v", err))
		return
	}
	e := r.Recorder.Begin(p.Node)
	defer func() {
		if defect := recover(); defect != nil {
			r.Recorder.Error(p.Node, fmt.Sprintf("metadata.ownerReferences could not be added: internal error: %v", defect))
		}
	}()
	for _, l := range p.Lost {
		dropped(e, l)
	}
	if len(p.Missing) > 0 {
		failpoint.Hit("restore-runner/before-owner-patch")
		if !r.adopt(ctx, e, &p.Child, p.Missing) {
			return
		}
		failpoint.Hit("restore-runner/after-owner-patch")
	}
	e.Linked()
	e.Commit()
	failpoint.Hit("restore-runner/owner-patch-noted")
}

// adopt adds owner references to an object of this restore. False when ctx ended before it was
// done.
func (r *run) adopt(ctx context.Context, e *outcome.Entry, c *relink.Child, missing []any) bool {
	adopted, err := r.client.Adopt(ctx, apply.Orphan{Target: r.present(c.Node), UID: c.UID, Version: c.Version, Base: c.Base, Missing: missing})
	for _, note := range adopted.Notes {
		e.Info(note)
	}
	if adopted.Unblocked {
		e.Warn(apply.Unblocked)
	}
	if err != nil {
		e.Error(fmt.Sprintf("metadata.ownerReferences could not be added: %v", err))
		return ctx.Err() == nil
	}
	return true
}

// catchUp adds those owner references to an object that it was not created with: an earlier holder
// of the restore, or an earlier attempt, made it when its owners were not known yet. False when ctx
// ended before that was done.
func (r *run) catchUp(ctx context.Context, e *outcome.Entry, v int32, result *apply.Result, now []any) bool {
	if !result.Fresh || result.Version != "" || len(now) == 0 {
		return true
	}
	failpoint.Hit("restore-runner/before-missed-reference")
	return r.adopt(ctx, e, &relink.Child{Node: v, UID: result.UID}, now)
}

// present names a restored object.
func (r *run) present(node int32) apply.Target {
	kind := r.Plan.Kind(node)
	return apply.Target{GVR: kind.GVK.GroupVersion().WithResource(kind.Resource), Namespace: r.Plan.Target(node), Name: r.liveName(node)}
}

// appliedFields returns managed fields that must survive a restore: server-side appliers recognize
// by them what is theirs, and what they left out to have it removed. Without an applier nothing
// depends on them, and writing them back, which Velero always does, would be a second request for
// each object.
func appliedFields(fields []any) []any {
	for _, entry := range fields {
		if e, ok := entry.(map[string]any); ok && decoded.Text(e, "operation") == "Apply" {
			return fields
		}
	}
	return nil
}

// completeFields writes managed fields that must come back. The UID makes sure that it still is the
// object of this restore. False when ctx ended before they were written.
func (r *run) completeFields(ctx context.Context, e *outcome.Entry, it *item, result *apply.Result) bool {
	if len(it.fields) == 0 {
		return true
	}
	// Without the mark a taker would not recognize the object, should its outcome not be recorded
	// any more.
	mark := r.manager.Mark(decoded.Text(it.body, "apiVersion"), reset.RestoreLabels(decoded.Object(it.metadata(), "labels")))
	patch := map[string]any{"metadata": map[string]any{"uid": string(result.UID), "managedFields": append(slices.Clone(it.fields), mark)}}
	now, err := r.client.Patch(ctx, r.present(it.node), patch)
	if result.Version != "" { // else it is not known what else it has
		result.Version = now.Version
	}
	if err == nil {
		return true
	}
	e.Error(fmt.Sprintf("metadata.managedFields could not be added: %v", err))
	return ctx.Err() == nil
}
