package action

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/selection"
)

// Selector is which objects an action wants to see; empty lists and strings want everything.
type Selector struct {
	// IncludedNamespaces and ExcludedNamespaces are names or patterns with '*', '?' and '[..]'.
	IncludedNamespaces, ExcludedNamespaces []string
	// IncludedResources and ExcludedResources are names as people type them, with or without a group.
	IncludedResources, ExcludedResources []string
	// Labels is a label selector in its text form.
	Labels string
}

// Matcher answers for one action what its selector wants. Immutable, safe for concurrent use; it allocates nothing.
type Matcher struct {
	resources          matchList
	inNames, outNames  []string
	allNames           bool // no namespace is left out, so cluster-scoped objects are wanted too
	selector           labels.Selector
	everythingSelected bool
}

// Compile resolves the names of resources once. Names the cluster does not know stay as they are, in case their group
// only does not answer now. An error names the field.
func (s Selector) Compile(resolver selection.Resolver) (*Matcher, error) {
	selector, err := labels.Parse(s.Labels)
	if err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	for _, list := range []struct {
		field   string
		entries []string
	}{{"includedNamespaces", s.IncludedNamespaces}, {"excludedNamespaces", s.ExcludedNamespaces}} {
		for _, entry := range list.entries {
			if err := selection.CheckPattern(entry); err != nil {
				return nil, fmt.Errorf("%s: %w", list.field, err)
			}
		}
	}
	m := &Matcher{
		resources:          matchList{in: resolveAll(s.IncludedResources, resolver), out: resolveAll(s.ExcludedResources, resolver)},
		inNames:            withoutEmpty(s.IncludedNamespaces),
		outNames:           withoutEmpty(s.ExcludedNamespaces),
		selector:           selector,
		everythingSelected: selector.Empty(),
	}
	m.resources.all = len(withoutEmpty(s.IncludedResources)) == 0 || slices.Contains(s.IncludedResources, selection.All)
	included := len(m.inNames) == 0 || (len(m.inNames) == 1 && m.inNames[0] == selection.All)
	m.allNames = included && len(m.outNames) == 0
	return m, nil
}

type matchList struct {
	all     bool
	in, out map[schema.GroupResource]struct{}
}

func resolveAll(names []string, resolver selection.Resolver) map[schema.GroupResource]struct{} {
	set := make(map[schema.GroupResource]struct{}, len(names))
	for _, name := range withoutEmpty(names) {
		gr, _, ok := resolver.Resolve(name)
		if !ok {
			gr = schema.ParseGroupResource(strings.ToLower(name))
		}
		set[gr] = struct{}{}
	}
	return set
}

func withoutEmpty(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
}

// Resource reports whether objects of the resource can match at all. Where no action's does, objects need not be decoded.
func (m *Matcher) Resource(gr schema.GroupResource) bool {
	if _, out := m.resources.out[gr]; out {
		return false
	}
	if m.resources.all {
		return true
	}
	_, in := m.resources.in[gr]
	return in
}

// Namespace reports whether objects of the namespace can match; "" stands for cluster-scoped objects, which match only
// where no namespace is left out.
func (m *Matcher) Namespace(name string) bool {
	if m.allNames || name == "" {
		return m.allNames
	}
	return (len(m.inNames) == 0 || selection.MatchesAny(m.inNames, name)) && !selection.MatchesAny(m.outNames, name)
}

// Labels reports whether an object with these labels matches; nil stands for none.
func (m *Matcher) Labels(set labels.Labels) bool {
	if m.everythingSelected {
		return true
	}
	if set == nil {
		set = labels.Set(nil)
	}
	return m.selector.Matches(set)
}

// Matches reports whether the action wants the object.
func (m *Matcher) Matches(gr schema.GroupResource, namespace string, set labels.Labels) bool {
	return m.Resource(gr) && m.Namespace(namespace) && m.Labels(set)
}
