package flight

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// LinkerConfig is what owner references are restored with.
type LinkerConfig struct {
	Plan       *plan.Plan
	Recorder   *outcome.Recorder
	Existing   *object.LiveReader
	Catalog    *object.Catalog
	Names      *object.Names
	Namespaces *object.TargetNamespaces
	// Limit is how many requests run at once.
	Limit func() int
	Stop  object.StopSignal
}

// Linker restores the owner references of a restore. Safe for concurrent use.
type Linker struct {
	LinkerConfig
	book     *Book
	others   otherOwners
	patching sync.Mutex // held while the objects of an owner are patched
}

// NewLinker returns a linker.
func NewLinker(cfg LinkerConfig) *Linker { return &Linker{LinkerConfig: cfg, book: NewBook()} }

// References are an object's owner references, split into those to create it with, those to add
// later, and those that are dropped.
type References struct {
	Now   []any
	Later []Reference
	lost  []lostReference
}

// lostReference is a reference that is dropped. Its owner is "Kind name".
type lostReference struct{ owner, reason string }

// Report records the references that are dropped.
func (r *References) Report(e *outcome.Entry) {
	for _, lost := range r.lost {
		warnDropped(e, lost)
	}
}

func warnDropped(e *outcome.Entry, lost lostReference) {
	e.Warn(fmt.Sprintf("owner reference to %s dropped: %s", lost.owner, lost.reason))
}

// describeLostOwner describes a reference to an object of the plan.
func (l *Linker) describeLostOwner(lost LostOwner) lostReference {
	return lostReference{owner: l.Plan.Kind(lost.Owner).GVK.Kind + " " + l.Plan.Name(lost.Owner), reason: lost.Reason}
}

// References splits an object's stored references. Those that a controller renews by adoption are
// dropped without a word.
func (l *Linker) References(ctx context.Context, o *object.Object) (r References) {
	var known []Reference
	for _, ref := range o.Owners {
		value, owner, ok := object.Reference(ref)
		if !ok || l.relationTo(o.Node, owner) == plan.Adopt {
			continue
		}
		node, ok := l.nodeWithUID(owner.UID)
		switch {
		case !ok && l.isOwnerLive(ctx, o.Target.Namespace, owner):
			r.Now = append(r.Now, value)
			continue
		case !ok:
			r.lost = append(r.lost, lostReference{owner: ReferenceName(value), reason: "the owner is not part of the restore"})
			continue
		}
		l.findOwner(ctx, node)
		known = append(known, Reference{Node: node, Value: value})
	}
	now, later, lost := l.book.SplitReferences(o.Target.Namespace, known)
	now = append(now, o.AddedOwners()...)
	for _, missing := range lost {
		r.lost = append(r.lost, l.describeLostOwner(missing))
	}
	r.lost = append(r.lost, l.linkTemplates(ctx, o)...)
	r.Now, r.Later = append(r.Now, now...), later
	return r
}

// Remade returns the owner that makes this object anew, "" when there is none.
func (l *Linker) Remade(o *object.Object) string {
	for _, ref := range o.Owners {
		value, owner, ok := object.Reference(ref)
		if !ok || l.relationTo(o.Node, owner) != plan.Remake {
			continue
		}
		if node, ok := l.nodeWithUID(owner.UID); ok && l.Recorder.Action(node) != apply.Failed {
			return ReferenceName(value)
		}
	}
	return ""
}

// relationTo returns how the reference of an object to an owner is restored. An owner that was
// created paused makes and adopts nothing; one that was in the cluster before is not paused.
func (l *Linker) relationTo(v int32, owner objmeta.Owner) plan.Relation {
	if node, ok := l.Plan.Owner(owner.UID); ok && l.Plan.Paused(node) && l.Recorder.Action(node) == apply.Created {
		return plan.Hold
	}
	return plan.Relate(l.Plan.Kind(v).GVK.GroupKind(), owner)
}

// nodeWithUID returns the node that had this UID in the old cluster; false when it is not restored.
func (l *Linker) nodeWithUID(uid string) (int32, bool) {
	node, ok := l.Plan.Owner(uid)
	return node, ok && l.Recorder.Concerns(node)
}

// findOwner reads, once, an owner that may be in the cluster from before the restore: what it owns is
// created with the reference then. A namespace that this restore made has no such owner.
func (l *Linker) findOwner(ctx context.Context, node int32) {
	if l.Plan.Class(node) != plan.Other || l.Namespaces.Created(l.Plan.Target(node)) {
		return
	}
	l.book.LookUpOwner(node, func() *Owner {
		live, err := l.Existing.Get(ctx, l.Names.Target(node))
		if live == nil || err != nil {
			return nil // its own creation decides
		}
		meta := object.MapAt(live, "metadata")
		if meta["deletionTimestamp"] != nil {
			return nil // it will take with it what it owns
		}
		return l.ownerOf(node, types.UID(object.TextAt(meta, "uid")))
	})
}

// ownerOf is a node as others refer to it, nil when it has no UID.
func (l *Linker) ownerOf(node int32, uid types.UID) *Owner {
	if uid == "" {
		return nil
	}
	gvk, target := l.Names.Kind(node), l.Names.Target(node)
	return &Owner{
		UID: uid, APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
		Namespace: target.Namespace, Name: target.Name,
	}
}
