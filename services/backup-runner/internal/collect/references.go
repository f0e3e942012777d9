package collect

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// openReferences reads the rules of users about references. What is wrong with them costs a warning:
// without a rule the manifest says less, and no object is missing. Definitions of custom resources are
// read when their first object is.
func (r *collectRun) openReferences(ctx context.Context) error {
	finder := &plan.Finder{Lister: r.cfg.Lister, Cut: r.job.Cut}
	data, err := finder.ReadConfigMap(ctx, r.job.Backup.Namespace, reference.ConfigMap)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rules, errs := reference.ParseRules(data)
	if err != nil {
		errs = append(errs, fmt.Errorf("ConfigMap %s: its rules do not apply: %w", reference.ConfigMap, err))
	}
	for _, err := range errs {
		r.ruleWarnings = append(r.ruleWarnings, err.Error())
	}
	scopes := sync.OnceValue(r.kindScopes) // the catalog may still grow
	r.references = reference.NewSet(rules, func(kind schema.GroupKind) (namespaced, served bool) {
		namespaced, served = scopes()[kind]
		return namespaced, served
	}, func(gr schema.GroupResource) []byte {
		body, err := finder.ReadDefinition(ctx, gr)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.WarnContext(ctx, "Failed to read CustomResourceDefinition; the manifest has fewer references of its objects", "name", gr.String(), "error", err)
		}
		return body
	})
	return nil
}

// kindScopes returns the kinds that the cluster serves, and whether their objects have a namespace.
func (r *collectRun) kindScopes() map[schema.GroupKind]bool {
	scopes := map[schema.GroupKind]bool{}
	for _, res := range r.job.Catalog.All() {
		scopes[res.Kind.GroupKind()] = res.Namespaced
	}
	return scopes
}
