package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Silent reports whether a version of the group was announced and did not answer.
func Silent(c *resource.Catalog, group string) bool {
	return slices.ContainsFunc(c.Failures(), func(f resource.GroupFailure) bool { return f.GroupVersion.Group == group })
}

// Missing reports whether units of a kind are left that is not served, and whose group is silent:
// it may be served again soon.
func Missing(name checkpoint.Kind, c *resource.Catalog, f *selection.Filter, done func(unit string) bool) bool {
	gr := schema.ParseGroupResource(name.Resource)
	if _, served := c.Lookup(gr); served || !Silent(c, gr.Group) {
		return false
	}
	for u := range Named(name).Units(f) {
		if !done(u.ID()) {
			return true
		}
	}
	return false
}
