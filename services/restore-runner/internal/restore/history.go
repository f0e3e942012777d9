package restore

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
)

// resumeHistory takes over what an earlier holder knew, and returns the pass that does what it
// owed.
func (r *run) resumeHistory() func(context.Context) error {
	h := r.History
	for _, v := range h.Served {
		// The API server accepts a definition only under the name <plural>.<group>.
		plural, group, _ := strings.Cut(r.Plan.Node(v).Name, ".")
		r.fresh[schema.GroupResource{Group: group, Resource: plural}] = true
	}
	for v, uid := range h.Owners {
		r.owners.Settle(v, r.owner(v, uid)) // nothing waits yet
	}
	var all []relink.Due
	for v, owes := range h.Owing {
		var later []relink.Reference
		for _, value := range owes.Later {
			if node, ok := r.Plan.Owner(decoded.Text(value, "uid")); ok {
				later = append(later, relink.Reference{Node: node, Value: value})
			}
		}
		due, now, err := r.owners.Await(relink.Child{Node: v, UID: owes.UID, Namespace: r.place(v)}, later)
		if err != nil {
			r.Recorder.Error(v, fmt.Sprintf("metadata.ownerReferences could not be added: %v", err))
		} else if now {
			all = append(all, due)
		}
	}
	h.Owing = nil // the book has it
	return func(ctx context.Context) error { return r.patchOwners(ctx, all) }
}

// place is the namespace that owners of a node are looked for in.
func (r *run) place(v int32) string {
	if r.Plan.Class(v) == plan.NamespaceObject {
		return ""
	}
	return r.Plan.Target(v)
}
