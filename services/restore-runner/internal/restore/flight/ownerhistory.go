package flight

import (
	"context"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Resume takes over what an earlier holder of the restore knew of owners, and returns what patches
// the objects that it left due. Owing of the history is nil afterwards.
func (l *Linker) Resume(h *outcome.History) (patch func(context.Context) error) {
	for v, uid := range h.Owners {
		l.book.Resolve(v, l.ownerOf(v, uid)) // nothing waits yet
	}
	var all []*Child
	for v, owes := range h.Owing {
		var later []Reference
		for _, ref := range owes.Later {
			if node, ok := l.Plan.Owner(ref.UID); ok {
				later = append(later, Reference{Node: node, Value: referenceValue(ref)})
			}
		}
		child := &Child{Node: v, UID: owes.UID, Namespace: l.ownerNamespace(v)}
		if l.book.Await(child, later) {
			all = append(all, child)
		}
	}
	h.Owing = nil // the book has it
	return func(ctx context.Context) error { return l.patchChildren(ctx, all) }
}

// laterReferences are what records keep of references whose owners are not there yet.
func laterReferences(refs []Reference) []outcome.LaterReference {
	out := make([]outcome.LaterReference, len(refs))
	for i, ref := range refs {
		out[i] = outcome.LaterReference{
			UID: object.TextAt(ref.Value, "uid"), Controller: boolAt(ref.Value, "controller"), Block: boolAt(ref.Value, "blockOwnerDeletion"),
		}
	}
	return out
}

func boolAt(value map[string]any, key string) *bool {
	if flag, ok := value[key].(bool); ok {
		return &flag
	}
	return nil
}

// referenceValue is the owner reference of a record, as the backup has it.
func referenceValue(ref outcome.LaterReference) map[string]any {
	value := map[string]any{"uid": ref.UID}
	if ref.Controller != nil {
		value["controller"] = *ref.Controller
	}
	if ref.Block != nil {
		value["blockOwnerDeletion"] = *ref.Block
	}
	return value
}

// ownerNamespace is the namespace that owners of a node are looked for in.
func (l *Linker) ownerNamespace(v int32) string {
	if l.Plan.Class(v) == plan.NamespaceObject {
		return ""
	}
	return l.Plan.Target(v)
}
