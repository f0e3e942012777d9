package selection

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Prefixes of validation messages, as Velero's CLI and its users' scripts look for them.
const (
	PrefixResources          = "Invalid included/excluded resource lists: "
	PrefixClusterResources   = "Invalid cluster-scoped included/excluded resource lists: "
	PrefixNamespaceResources = "Invalid namespace-scoped included/excluded resource lists: "
	PrefixNamespaces         = "Invalid included/excluded namespace lists: "
)

// All is the list entry that selects everything.
const All = "*"

// Validation failures of lists; ListError wraps one of them and names the entry.
var (
	ErrIncludeAllMixed   = errors.New("the include list holds '*' beside other entries")
	ErrExcludeAll        = errors.New("the exclude list holds '*'")
	ErrIncludedExcluded  = errors.New("an entry is in the include list and in the exclude list")
	ErrPattern           = errors.New("not a namespace name or pattern")
	ErrResourcePattern   = errors.New("not a resource name or pattern")
	ErrMixedFilterStyles = errors.New("includedResources, excludedResources and includeClusterResources cannot be used together with " +
		"includedClusterScopedResources, excludedClusterScopedResources, includedNamespaceScopedResources and excludedNamespaceScopedResources")
	ErrBothSelectors = errors.New("labelSelector and orLabelSelectors cannot both be set")
)

// ListError is one problem of an include or exclude list.
type ListError struct {
	// Entry is the offending entry, empty where the list as a whole is wrong.
	Entry string
	// Err is one of the sentinels of this package, possibly with detail.
	Err error
}

// Error implements error.
func (e *ListError) Error() string {
	if e.Entry == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%q: %v", e.Entry, e.Err)
}

// Unwrap returns the sentinel.
func (e *ListError) Unwrap() error { return e.Err }

// ValidateIncludesExcludes checks a pair of resource lists of the older style: '*' stands alone in
// the includes and never in the excludes, and no entry is in both. It returns every problem, nil
// when there is none.
func ValidateIncludesExcludes(includes, excludes []string) []error {
	var errs []error
	if len(includes) > 1 && slices.Contains(includes, All) {
		errs = append(errs, &ListError{Err: ErrIncludeAllMixed})
	}
	if slices.Contains(excludes, All) {
		errs = append(errs, &ListError{Err: ErrExcludeAll})
	}
	return append(errs, overlapErrors(includes, excludes)...)
}

// ValidateScopedIncludesExcludes checks a pair of resource lists of the newer style: as
// ValidateIncludesExcludes, but the excludes may be exactly ["*"] when there are no includes.
func ValidateScopedIncludesExcludes(includes, excludes []string) []error {
	if len(includes) == 0 && len(excludes) == 1 && excludes[0] == All {
		return nil
	}
	return ValidateIncludesExcludes(includes, excludes)
}

// ValidateNamespaces checks a pair of namespace lists: the rules of ValidateIncludesExcludes, and
// every entry must be a namespace name or a pattern (see Pattern). Empty entries are tolerated, as
// Velero does.
func ValidateNamespaces(includes, excludes []string) []error {
	errs := ValidateIncludesExcludes(includes, excludes)
	for _, list := range [][]string{includes, excludes} {
		for _, entry := range list {
			if err := CheckPattern(entry); err != nil {
				errs = append(errs, &ListError{Entry: entry, Err: err})
			}
		}
	}
	return errs
}

func overlapErrors(includes, excludes []string) []error {
	var errs []error
	for _, entry := range excludes {
		if entry != All && slices.Contains(includes, entry) {
			errs = append(errs, &ListError{Entry: entry, Err: ErrIncludedExcluded})
		}
	}
	return errs
}

// SelectorError is a label selector that cannot be used.
type SelectorError struct {
	// Field is the selector's, "labelSelector" or "orLabelSelectors[1]".
	Field string
	// Err is what is wrong with it.
	Err error
}

// Error implements error.
func (e *SelectorError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *SelectorError) Unwrap() error { return e.Err }

// Validate checks every list of the spec of a backup or restore and returns the messages for
// status.validationErrors, with Velero's prefixes. The selectors are checked by Selectors.
func (s *Spec) Validate() []string {
	var out []string
	add := func(prefix string, errs []error) {
		for _, err := range errs {
			out = append(out, prefix+err.Error())
		}
	}
	if s.UsesOldFilters() && s.UsesNewFilters() {
		out = append(out, ErrMixedFilterStyles.Error())
	}
	add(PrefixResources, ValidateIncludesExcludes(s.IncludedResources, s.ExcludedResources))
	add(PrefixResources, CheckResources(s.IncludedResources, s.ExcludedResources))
	add(PrefixClusterResources, ValidateScopedIncludesExcludes(s.IncludedClusterScopedResources, s.ExcludedClusterScopedResources))
	add(PrefixClusterResources, CheckResources(s.IncludedClusterScopedResources, s.ExcludedClusterScopedResources))
	add(PrefixNamespaceResources, ValidateScopedIncludesExcludes(s.IncludedNamespaceScopedResources, s.ExcludedNamespaceScopedResources))
	add(PrefixNamespaceResources, CheckResources(s.IncludedNamespaceScopedResources, s.ExcludedNamespaceScopedResources))
	add(PrefixNamespaces, ValidateNamespaces(s.IncludedNamespaces, s.ExcludedNamespaces))
	return out
}

// Selectors returns the label selectors of the spec, one of which an object must match; none means
// that every object matches. Errors: ErrBothSelectors, or a *SelectorError.
func (s *Spec) Selectors() ([]labels.Selector, error) {
	if s.LabelSelector != nil && len(s.OrLabelSelectors) > 0 {
		return nil, ErrBothSelectors
	}
	if s.LabelSelector != nil {
		return parseSelectors([]*metav1.LabelSelector{s.LabelSelector}, func(int) string { return "labelSelector" })
	}
	return parseSelectors(s.OrLabelSelectors, func(i int) string { return fmt.Sprintf("orLabelSelectors[%d]", i) })
}

// parseSelectors drops to no selector at all when one of them matches everything.
func parseSelectors(in []*metav1.LabelSelector, field func(i int) string) ([]labels.Selector, error) {
	var out []labels.Selector
	everything := false
	for i, ls := range in {
		if ls == nil {
			return nil, &SelectorError{Field: field(i), Err: errors.New("must not be null")}
		}
		sel, err := metav1.LabelSelectorAsSelector(ls)
		if err != nil {
			return nil, &SelectorError{Field: field(i), Err: err}
		}
		everything = everything || sel.Empty()
		out = append(out, sel)
	}
	if everything {
		return nil, nil
	}
	return out, nil
}
