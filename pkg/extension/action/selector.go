package action

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// ErrExpression means that an action's expression cannot be evaluated for an object.
var ErrExpression = errors.New("selector cannot be evaluated")

// Selector selects the objects that an action is called for; empty lists and strings select all.
type Selector struct {
	// IncludedNamespaces and ExcludedNamespaces are names or patterns with '*', '?' and '[..]'.
	IncludedNamespaces, ExcludedNamespaces []string
	// IncludedResources and ExcludedResources are names as people type them, with or without a
	// group, or patterns as in IncludedNamespaces ("*.longhorn.io").
	IncludedResources, ExcludedResources []string
	// Touches are the only resources the action may be called for, whatever its other fields select;
	// empty or "*" means any.
	Touches []string
	// Labels is a label selector in its text form.
	Labels string
	// Expression is in the Common Expression Language, over the variable item, the whole object,
	// and yields a bool.
	Expression string
}

// Matcher evaluates the selector of one action. Immutable, safe for concurrent use; only
// Accepts allocates.
type Matcher struct {
	resources          matchList
	touches            matchList
	inNames, outNames  []string
	allNames           bool // no namespace is left out, so cluster-scoped objects are wanted too
	selector           labels.Selector
	everythingSelected bool
	expression         *plugin.Expression // nil for none
}

// Compile resolves the names of resources once. Names the cluster does not know stay as they are,
// in case their group only does not answer now. An error names the field.
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
	if bad := selection.CheckResources(s.IncludedResources, s.ExcludedResources); len(bad) > 0 {
		return nil, fmt.Errorf("includedResources, excludedResources: %w", bad[0])
	}
	m := &Matcher{
		resources:          newMatchList(s.IncludedResources, s.ExcludedResources, resolver),
		touches:            newMatchList(s.Touches, nil, resolver),
		inNames:            withoutEmpty(s.IncludedNamespaces),
		outNames:           withoutEmpty(s.ExcludedNamespaces),
		selector:           selector,
		everythingSelected: selector.Empty(),
	}
	if s.Expression != "" {
		if m.expression, err = plugin.CompileExpression(s.Expression); err != nil {
			return nil, err
		}
	}
	included := len(m.inNames) == 0 || (len(m.inNames) == 1 && m.inNames[0] == selection.All)
	m.allNames = included && len(m.outNames) == 0
	return m, nil
}

// matchList is a pair of lists of resources; no included name means every resource.
type matchList struct{ in, out selection.ResourceSet }

func newMatchList(in, out []string, resolver selection.Resolver) matchList {
	return matchList{in: selection.NewResourceSet(in, resolver), out: selection.NewResourceSet(out, resolver)}
}

func (l *matchList) includesResource(gr schema.GroupResource) bool {
	return !l.out.Has(gr) && (l.in.IsEmpty() || l.in.Has(gr))
}

func withoutEmpty(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
}

// Resource reports whether objects of the resource can match at all. Where no action's does,
// objects need not be decoded.
func (m *Matcher) Resource(gr schema.GroupResource) bool {
	return m.resources.includesResource(gr) && m.touches.includesResource(gr)
}

// Namespace reports whether objects of the namespace can match; "" means cluster-scoped objects,
// which match only where no namespace is left out.
func (m *Matcher) Namespace(name string) bool {
	if m.allNames || name == "" {
		return m.allNames
	}
	return (len(m.inNames) == 0 || selection.MatchesAny(m.inNames, name)) && !selection.MatchesAny(m.outNames, name)
}

// Labels reports whether an object with these labels matches; nil means none.
func (m *Matcher) Labels(set labels.Labels) bool {
	if m.everythingSelected {
		return true
	}
	if set == nil {
		set = labels.Set(nil)
	}
	return m.selector.Matches(set)
}

// Matches reports whether the object matches everything but the expression, without decoding it;
// Accepts evaluates the expression.
func (m *Matcher) Matches(gr schema.GroupResource, namespace string, set labels.Labels) bool {
	return m.Resource(gr) && m.Namespace(namespace) && m.Labels(set)
}

// Accepts reports whether the expression is true for the object; without one it is. It decodes the
// object. An expression that fails, such as on a missing field, is an error of that object that
// wraps ErrExpression.
func (m *Matcher) Accepts(ctx context.Context, o *Object) (bool, error) {
	if m.expression == nil {
		return true, nil
	}
	content, err := o.Content()
	if err != nil {
		return false, err
	}
	wants, err := m.expression.Matches(ctx, content)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrExpression, err)
	}
	return wants, nil
}
