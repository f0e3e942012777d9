package hook

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

var pods = schema.GroupResource{Resource: "pods"}

// hookScope selects the Pods of a set of hooks. Lists of resources select Pods or they do not: hooks
// of other objects do not exist (Velero 1.18).
type hookScope struct {
	includedNamespaces, excludedNamespaces []string
	includedResources, excludedResources   []string
	labelSelector                          *metav1.LabelSelector
}

// checkScope finds what is wrong with a scope, with fields below a path.
func (s *hookScope) checkScope(path string) (out []Problem) {
	for _, err := range selection.ValidateNamespaces(s.includedNamespaces, s.excludedNamespaces) {
		out = append(out, Problem{path + ".includedNamespaces, excludedNamespaces", err.Error()})
	}
	wrong := append(selection.ValidateIncludesExcludes(s.includedResources, s.excludedResources), selection.CheckResources(s.includedResources, s.excludedResources)...)
	for _, err := range wrong {
		out = append(out, Problem{path + ".includedResources, excludedResources", err.Error()})
	}
	if _, err := s.parseSelector(); err != nil {
		out = append(out, Problem{path + ".labelSelector", err.Error()})
	}
	return out
}

// parseSelector returns the selector; no selector selects every Pod.
func (s *hookScope) parseSelector() (labels.Selector, error) {
	if s.labelSelector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s.labelSelector)
	if err != nil {
		return nil, fmt.Errorf("label selector: %w", err)
	}
	return selector, nil
}

// matcher is a scope whose names are resolved.
type matcher struct {
	included, excluded []string // patterns of namespaces
	labels             labels.Selector
	none               bool // Pods are not among its resources
}

func (s *hookScope) newMatcher(r selection.Resolver) (matcher, error) {
	selector, err := s.parseSelector()
	if err != nil {
		return matcher{}, err
	}
	in, out := selection.NewResourceSet(s.includedResources, r), selection.NewResourceSet(s.excludedResources, r)
	return matcher{
		included: s.includedNamespaces, excluded: s.excludedNamespaces, labels: selector,
		none: out.Has(pods) || len(s.includedResources) > 0 && !in.Has(pods),
	}, nil
}

func (m *matcher) matchesPod(namespace string, set labels.Labels) bool {
	return !m.none && !selection.MatchesAny(m.excluded, namespace) &&
		(len(m.included) == 0 || selection.MatchesAny(m.included, namespace)) && m.labels.Matches(set)
}

var errNoExec = errors.New("is required: no other kind of hook is known")
