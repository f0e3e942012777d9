package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// unselectedError is a backup with objects of which the restore selects none.
type unselectedError struct{ problems []string }

// Error implements error.
func (e *unselectedError) Error() string { return strings.Join(e.problems, "; ") }

// reportUnmatched warns of names in the spec that match nothing. The error is an *unselectedError where nothing at
// all is left to restore, or the filters leave out an object that the restore names.
func (p *restorePlanner) reportUnmatched(survey *plan.Survey, filter *selection.Filter, made *preparedPlan, leftOut []string) error {
	var silent []schema.GroupVersion
	for _, f := range made.catalog.Failures() {
		silent = append(silent, f.GroupVersion)
	}
	unmatched := append(unmatchedNamespaces(&p.in.restore.Spec, survey.Namespaces),
		filter.Unmatched(silent, "neither the cluster nor the backup has such a resource")...)
	if made.Plan.Selected() == 0 && !survey.Empty() && len(leftOut) == 0 {
		nothing := fmt.Sprintf("the filters of the restore select none of the %d objects of backup %q", survey.Objects, p.in.backup.Name)
		return &unselectedError{append(unmatched, nothing)}
	}
	if len(leftOut) > 0 {
		return &unselectedError{append(unmatched, p.in.itemsField()+"the filters of the restore leave out "+ledger.JoinNames(leftOut))}
	}
	for _, warning := range unmatched {
		p.in.recorder.Warn(outcome.General, warning)
	}
	return nil
}

// unmatchedNamespaces returns a warning for each namespace that the spec names and the backup does not hold. The
// target of the mapping is often named by mistake.
func unmatchedNamespaces(spec *velerov1.RestoreSpec, held []string) (warnings []string) {
	sources := slices.Sorted(maps.Keys(spec.NamespaceMapping))
	for _, list := range []struct {
		field string
		names []string
	}{{"includedNamespaces", spec.IncludedNamespaces}, {"excludedNamespaces", spec.ExcludedNamespaces}, {"namespaceMapping", sources}} {
		for _, name := range list.names {
			if _, ok := slices.BinarySearch(held, name); ok || name == "" || selection.IsPattern(name) {
				continue
			}
			warning := fmt.Sprintf("spec.%s: the backup holds no namespace %q", list.field, name)
			mapped := slices.IndexFunc(sources, func(source string) bool { return spec.NamespaceMapping[source] == name })
			if mapped >= 0 {
				warning += fmt.Sprintf(", which is the target of %q in spec.namespaceMapping: name %q", sources[mapped], sources[mapped])
			}
			warnings = append(warnings, warning)
		}
	}
	return warnings
}
