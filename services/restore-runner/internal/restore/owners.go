package restore

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/objmeta"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
)

func text(o map[string]any, key string) string {
	s, ok := o[key].(string)
	if !ok {
		return ""
	}
	return s
}

// reference reads a stored owner reference.
func reference(ref any) (map[string]any, objmeta.Owner, bool) {
	value, ok := ref.(map[string]any)
	if !ok {
		return nil, objmeta.Owner{}, false
	}
	controller, ok := value["controller"].(bool)
	return value, objmeta.Owner{
		APIVersion: text(value, "apiVersion"), Kind: text(value, "kind"), Name: text(value, "name"), UID: text(value, "uid"),
		Controller: ok && controller,
	}, true
}

// ownersOf splits an object's stored references into those to create it with and those to add later, and reports those
// that are dropped. References that a controller renews by adoption are dropped without a word.
func (r *run) ownersOf(e *outcome.Entry, it *item) (now []any, later []relink.Reference) {
	var known []relink.Reference
	for _, ref := range it.refs {
		value, owner, ok := reference(ref)
		if !ok || plan.Relate(r.Plan.Kind(it.node).GVK.GroupKind(), owner) == plan.Adopt {
			continue
		}
		node, ok := r.ownerNode(owner.UID)
		if !ok {
			dropped(e, relink.Lost{Owner: relink.Name(value), Reason: "the owner is not part of the restore"})
			continue
		}
		known = append(known, relink.Reference{Node: node, Value: value})
	}
	now, later, lost := r.owners.Known(it.target.Namespace, known)
	for _, l := range lost {
		dropped(e, l)
	}
	return append(now, it.foreignRefs()...), later
}

// ownerNode returns the node that had this UID in the old cluster; false when it is not restored.
func (r *run) ownerNode(uid string) (int32, bool) {
	node, ok := r.Plan.Owner(uid)
	return node, ok && r.Recorder.Concerns(node)
}

// foreignRefs returns the references that actions added. A stored one that an action brought back is not among them: its
// UID is of the old cluster.
func (it *item) foreignRefs() []any {
	added := list(it.metadata(), "ownerReferences")
	if len(added) == 0 {
		return nil
	}
	delete(it.metadata(), "ownerReferences")
	old := map[string]bool{"": true}
	for _, ref := range it.refs {
		if _, owner, ok := reference(ref); ok {
			old[owner.UID] = true
		}
	}
	var out []any
	for _, ref := range added {
		if _, owner, ok := reference(ref); ok && !old[owner.UID] {
			out = append(out, ref)
		}
	}
	return out
}

func dropped(e *outcome.Entry, l relink.Lost) {
	e.Warn(fmt.Sprintf("owner reference to %s dropped: %s", l.Owner, l.Reason))
}

// settle tells those who wait for an owner what it is now. A result without UID means that it is not there.
func (r *run) settle(ctx context.Context, node int32, result apply.Result) {
	if !r.Plan.Owns(node) {
		return
	}
	for _, p := range r.owners.Settle(node, r.owner(node, result.UID)) {
		r.patchOwners(ctx, &p)
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

// patchOwners completes the references of an object that came before its owners; nil is nothing to do.
func (r *run) patchOwners(ctx context.Context, p *relink.Patch) {
	if p == nil {
		return
	}
	e := r.Recorder.Begin(p.Child)
	for _, l := range p.Lost {
		dropped(e, l)
	}
	if len(p.References) > 0 {
		failpoint.Hit("restore-runner/before-owner-patch")
		if !r.complete(ctx, e, p.Child, p.UID, "ownerReferences", p.References) {
			return
		}
		failpoint.Hit("restore-runner/after-owner-patch")
	}
	e.Linked()
	e.Commit()
	failpoint.Hit("restore-runner/owner-patch-noted")
}

// complete writes one field of the metadata of an object of this restore. The UID makes sure that it still is the one. False
// when ctx ended before it was written.
func (r *run) complete(ctx context.Context, e *outcome.Entry, node int32, uid types.UID, field string, value []any) bool {
	patch := map[string]any{"metadata": map[string]any{"uid": string(uid), field: value}}
	err := r.client.Patch(ctx, r.present(node), patch)
	if err == nil {
		return true
	}
	e.Error(fmt.Sprintf("metadata.%s could not be added: %v", field, err))
	return ctx.Err() == nil
}

// present names a restored object.
func (r *run) present(node int32) apply.Target {
	kind := r.Plan.Kind(node)
	return apply.Target{GVR: kind.GVK.GroupVersion().WithResource(kind.Resource), Namespace: r.Plan.Target(node), Name: r.liveName(node)}
}

// appliedFields returns managed fields that must survive a restore: server-side appliers recognize by them what is theirs,
// and what they left out to have it removed. Without an applier nothing depends on them, and writing them back, which Velero
// always does, would be a second request for each object.
func appliedFields(fields []any) []any {
	for _, entry := range fields {
		if e, ok := entry.(map[string]any); ok && text(e, "operation") == "Apply" {
			return fields
		}
	}
	return nil
}

func (r *run) completeFields(ctx context.Context, e *outcome.Entry, it *item, uid types.UID) bool {
	if len(it.fields) == 0 {
		return true
	}
	// Without the mark a taker would not recognize the object, should its outcome not be recorded any more.
	mark := r.manager.Mark(text(it.body, "apiVersion"), reset.RestoreLabels(object(it.metadata(), "labels")))
	return r.complete(ctx, e, it.node, uid, "managedFields", append(slices.Clone(it.fields), mark))
}
