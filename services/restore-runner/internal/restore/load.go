package restore

import (
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// skipped reports whether the object stays out.
func (r *run) skipped(it *object.Object) *reset.Skip {
	kind := r.Plan.Kind(it.Node)
	if skip := reset.Skipped(it.Body, kind.GroupResource()); skip != nil {
		return skip
	}
	if r.Runs.LeavesOut(kind.GroupResource()) {
		return &reset.Skip{Reason: "it would run again; the annotation " + holdfast.AnnotationRunAgain + " of a restore asks for it all the same", Report: true}
	}
	if owner := r.remade(it); owner != "" {
		return &reset.Skip{Reason: owner + ", which is restored or left out, makes such objects itself", Report: true}
	}
	if kind.String() == "persistentvolumes" && r.Volumes.Reprovision(it.Target.Name) {
		return &reset.Skip{Reason: "its claim gets a new volume"}
	}
	return nil
}

// remade returns the owner that makes this object anew, "" when there is none.
func (r *run) remade(it *object.Object) string {
	for _, ref := range it.Owners {
		value, owner, ok := object.Reference(ref)
		if !ok || r.relate(it.Node, owner) != plan.Remake {
			continue
		}
		if node, ok := r.ownerNode(owner.UID); ok && r.Recorder.Action(node) != apply.Failed {
			return relink.Name(value)
		}
	}
	return ""
}
