package flight

import (
	"context"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Resume takes over what an earlier holder of the restore knew of owners, and returns what patches
// the objects that it left due. Owing of the history is nil afterwards.
func (l *Linker) Resume(h *outcome.History) (patch func(context.Context) error) {
	for v, uid := range h.Owners {
		l.book.Resolve(v, l.ownerOf(v, uid)) // nothing waits yet
	}
	var all []*relink.Child
	for v, owes := range h.Owing {
		var later []relink.Reference
		for _, value := range owes.Later {
			if node, ok := l.Plan.Owner(object.TextAt(value, "uid")); ok {
				later = append(later, relink.Reference{Node: node, Value: value})
			}
		}
		child := &relink.Child{Node: v, UID: owes.UID, Namespace: l.ownerNamespace(v)}
		if l.book.Await(child, later) {
			all = append(all, child)
		}
	}
	h.Owing = nil // the book has it
	return func(ctx context.Context) error { return l.patchAll(ctx, all) }
}

// ownerNamespace is the namespace that owners of a node are looked for in.
func (l *Linker) ownerNamespace(v int32) string {
	if l.Plan.Class(v) == plan.NamespaceObject {
		return ""
	}
	return l.Plan.Target(v)
}
