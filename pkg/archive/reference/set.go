package reference

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindScopes reports whether the objects of a kind have a namespace, and whether the cluster serves it.
type kindScopes func(kind schema.GroupKind) (namespaced, served bool)

// Set makes the Finders of one backup. Safe for concurrent use.
type Set struct {
	rules      []Rule // those of users
	scopes     kindScopes
	definition func(gr schema.GroupResource) []byte

	mu    sync.Mutex
	kinds map[schema.GroupKind]*kindRules
}

// builtin has neither rules of users nor definitions.
var builtin = NewSet(nil, nil, nil)

// NewSet returns a Set with rules of users. Scopes are those of the kinds that the cluster serves, and
// definition returns the body of a CustomResourceDefinition, nil where it cannot be read; it is called once
// for each kind that has objects. Both may be nil.
func NewSet(rules []Rule, scopes func(kind schema.GroupKind) (namespaced, served bool), definition func(gr schema.GroupResource) []byte) *Set {
	return &Set{rules: rules, scopes: scopes, definition: definition, kinds: map[schema.GroupKind]*kindRules{}}
}

// For returns the Finder for a kind by the built-in rules, nil when there are none. The version does not
// matter.
func For(kind schema.GroupKind) *Finder { return builtin.For(kind.WithVersion(""), "") }

// For returns the Finder for a kind, nil when there is nothing to find. Resource is the name of a custom
// resource, which refers to its definition; it is empty for other kinds.
func (s *Set) For(kind schema.GroupVersionKind, resource string) *Finder {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, known := s.kinds[kind.GroupKind()]
	if !known {
		k = s.rulesFor(kind, resource)
		s.kinds[kind.GroupKind()] = k
	}
	if k == nil {
		return nil
	}
	return &Finder{rules: k}
}

// rulesFor returns the rules of a kind, nil where there are none.
func (s *Set) rulesFor(kind schema.GroupVersionKind, resource string) *kindRules {
	k := &kindRules{kind: kind, rule: rules[kind.GroupKind()], scopes: s.scopes}
	for _, r := range slices.Concat(s.rules, builtinRules) {
		if r.matchesKind(kind.GroupKind()) {
			steps, _ := splitField(r.Field) // was checked
			k.tree.addTarget(steps, targetOf(&r))
		}
	}
	if resource != "" {
		gr := schema.GroupResource{Group: kind.Group, Resource: resource}
		k.definition = gr.String()
		if s.definition != nil {
			k.body = func() []byte { return s.definition(gr) }
		}
	}
	if k.rule == nil && k.definition == "" && len(k.tree.children) == 0 {
		return nil
	}
	return k
}

// kindRules are all rules of one kind.
type kindRules struct {
	kind       schema.GroupVersionKind
	rule       referenceRule // of a built-in kind
	definition string        // the name of a custom resource's definition
	scopes     kindScopes

	body func() []byte // of the definition; nil where there is none
	once sync.Once
	tree fieldTree
}

// loadTree returns the rules by fields. The first call reads the definition.
func (k *kindRules) loadTree() *fieldTree {
	k.once.Do(func() {
		if k.body != nil {
			addRevealed(&k.tree, k.body(), k.kind.Version)
		}
	})
	return &k.tree
}
