package flight

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// otherOwners are the owners that are no part of the restore, and whether they are live.
type otherOwners struct {
	mu   sync.Mutex
	live map[string]bool // by namespace and UID
}

// isOwnerLive reports that the very owner of the backup, which is no part of the restore, is in the cluster
// still: its UID is the stored one. It is looked for once; one that cannot be read counts as gone.
func (l *Linker) isOwnerLive(ctx context.Context, namespace string, owner objmeta.Owner) bool {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	kind, ok := l.Catalog.OfKind(gv.WithKind(owner.Kind).GroupKind())
	switch {
	case !ok || kind.Namespaced && (namespace == "" || l.Namespaces.Created(namespace)):
		return false
	case !kind.Namespaced:
		namespace = ""
	}
	key := namespace + "/" + owner.UID
	l.others.mu.Lock()
	live, looked := l.others.live[key]
	l.others.mu.Unlock()
	if looked {
		return live
	}
	found, err := l.Existing.Get(ctx, apply.Target{GVR: gv.WithResource(kind.Name), Namespace: namespace, Name: owner.Name})
	meta := object.MapAt(found, "metadata")
	live = err == nil && object.TextAt(meta, "uid") == owner.UID && meta["deletionTimestamp"] == nil
	if ctx.Err() != nil {
		return false
	}
	l.others.mu.Lock()
	defer l.others.mu.Unlock()
	if l.others.live == nil {
		l.others.live = map[string]bool{}
	}
	l.others.live[key] = live
	return live
}

// linkTemplates gives the owner references in the templates of an object, which cannot be patched
// later, the identities of owners that are known now, and returns the others, which are dropped.
func (l *Linker) linkTemplates(ctx context.Context, o *object.Object) (lost []lostReference) {
	if len(apply.TemplateOwners(o.Body)) == 0 {
		return nil
	}
	o.Body = apply.OwnTemplates(o.Body)
	for _, meta := range apply.TemplateOwners(o.Body) {
		var kept []any
		for _, ref := range object.ListAt(meta, "ownerReferences") {
			value, owner, ok := object.Reference(ref)
			if !ok {
				continue
			}
			if now := l.knownReference(ctx, o.Target.Namespace, value, owner); now != nil {
				kept = append(kept, now)
				continue
			}
			lost = append(lost, lostReference{owner: ReferenceName(value), reason: "it is in a template, and the owner is not known when the object is created"})
		}
		delete(meta, "ownerReferences")
		if len(kept) > 0 {
			meta["ownerReferences"] = kept
		}
	}
	return lost
}

// knownReference returns a stored reference with the present identity of its owner, nil where the
// owner has none.
func (l *Linker) knownReference(ctx context.Context, namespace string, value map[string]any, owner objmeta.Owner) any {
	node, ok := l.nodeWithUID(owner.UID)
	if !ok {
		if l.isOwnerLive(ctx, namespace, owner) {
			return value
		}
		return nil
	}
	l.findOwner(ctx, node)
	if now, _, _ := l.book.SplitReferences(namespace, []Reference{{Node: node, Value: value}}); len(now) > 0 {
		return now[0]
	}
	return nil
}
