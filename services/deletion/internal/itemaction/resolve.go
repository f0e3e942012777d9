package itemaction

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// newResolver resolves the resource names in selectors by what the cluster serves, and for resources
// that it no longer serves, such as of a removed definition, by the backup itself.
func (w *attempt) newResolver(cluster selection.Resolver) selection.Resolver {
	if w.manifest == nil {
		return cluster
	}
	return &kindResolver{Resolver: cluster, kinds: w.manifest.Kinds()}
}

type kindResolver struct {
	selection.Resolver
	kinds []manifest.KindInfo
}

// Resolve implements selection.Resolver. A resource that is only in the backup is of unknown scope,
// which selectors of actions do not ask for.
func (r *kindResolver) Resolve(name string) (gr schema.GroupResource, namespaced, ok bool) {
	if gr, namespaced, ok = r.Resolver.Resolve(name); ok {
		return gr, namespaced, true
	}
	name = strings.ToLower(name)
	for _, k := range r.kinds {
		gr := schema.ParseGroupResource(k.Resource)
		_, _, kind, _ := manifest.SplitKindName(k.Kind)
		if name == k.Resource || name == gr.Resource || name == strings.ToLower(kind) {
			return gr, false, true
		}
	}
	return schema.GroupResource{}, false, false
}
