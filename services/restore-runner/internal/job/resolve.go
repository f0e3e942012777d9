package job

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// backupResolver keeps the resources that the names of a restore resolved to when it was planned: the
// definitions it brings into the cluster could give them another meaning.
type backupResolver struct {
	now     plan.Resolver
	planned outcome.Planned
}

// newResolver returns a resolver that begins with the resources an earlier holder planned with, if
// there was one.
func newResolver(now plan.Resolver, before *outcome.Planned) *backupResolver {
	r := &backupResolver{now: now}
	if before != nil {
		r.planned = *before
	}
	return r
}

// Resolve implements plan.Resolver.
func (r *backupResolver) Resolve(name string) (gr schema.GroupResource, namespaced, ok bool) {
	for _, known := range r.planned.Resolved {
		if known.Text == name {
			return schema.GroupResource{Group: known.Group, Resource: known.Resource}, known.Namespaced, known.Known
		}
	}
	gr, namespaced, ok = r.now.Resolve(name)
	r.planned.Resolved = append(r.planned.Resolved, outcome.Resolved{
		Text: name, Group: gr.Group, Resource: gr.Resource, Namespaced: namespaced, Known: ok,
	})
	return gr, namespaced, ok
}
