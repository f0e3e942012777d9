package restore

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

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
func (r *run) ownersOf(ctx context.Context, it *object.Object) (o owners) {
	var known []relink.Reference
	for _, ref := range it.Owners {
		value, owner, ok := object.Reference(ref)
		if !ok || r.relate(it.Node, owner) == plan.Adopt {
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
	now, later, lost := r.owners.Known(it.Target.Namespace, known)
	return owners{now: append(now, it.AddedOwners()...), later: later, lost: append(o.lost, lost...)}
}

// findOwner looks once for an owner that may be in the cluster from before the restore: what it
// owns is created with the reference then. In a namespace that this restore made it cannot be.
func (r *run) findOwner(ctx context.Context, node int32) {
	if r.Plan.Class(node) != plan.Other || r.targets.Created(r.Plan.Target(node)) {
		return
	}
	r.owners.Look(node, func() *relink.Owner {
		live, err := r.existing.Get(ctx, r.names.Target(node))
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
		Namespace: r.Plan.Target(node), Name: r.names.Name(node),
	}
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
	adopted, err := r.client.Adopt(ctx, apply.Orphan{Target: r.names.Target(c.Node), UID: c.UID, Version: c.Version, Base: c.Base, Missing: missing})
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

// completeFields writes managed fields that must come back. The UID makes sure that it still is the
// object of this restore. False when ctx ended before they were written.
func (r *run) completeFields(ctx context.Context, e *outcome.Entry, it *object.Object, result *apply.Result) bool {
	if len(it.Fields) == 0 {
		return true
	}
	// Without the mark a taker would not recognize the object, should its outcome not be recorded
	// any more.
	mark := r.manager.Mark(decoded.Text(it.Body, "apiVersion"), reset.RestoreLabels(decoded.Object(it.Metadata(), "labels")))
	patch := map[string]any{"metadata": map[string]any{"uid": string(result.UID), "managedFields": append(slices.Clone(it.Fields), mark)}}
	now, err := r.client.Patch(ctx, r.names.Target(it.Node), patch)
	if result.Version != "" { // else it is not known what else it has
		result.Version = now.Version
	}
	if err == nil {
		return true
	}
	e.Error(fmt.Sprintf("metadata.managedFields could not be added: %v", err))
	return ctx.Err() == nil
}
