package reference

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// Bounds of what one object can put into a manifest.
const (
	// Max is the number of references given for one object; the first ones in order are kept.
	Max = 1000
	// maxText is the length of a name, kind or group in bytes, far above what an API server takes.
	// References with longer ones are left out.
	maxText = 1024
)

// Finder finds the references in objects of one kind. It is not safe for concurrent use. A nil
// Finder finds nothing.
type Finder struct {
	rules *kindRules
	scan  objectScan
}

// Find returns what the object refers to, sorted, each reference once, at most Max; complete is
// false when there were more. Namespace is the object's own; references to objects beside it carry
// it. A body of a built-in kind whose fields are not what the API says they are gives no references.
// The slice is valid until the next call, its strings may be kept; raw is read during the call only.
func (f *Finder) Find(namespace string, raw []byte) (found []manifest.Reference, complete bool) {
	if f == nil {
		return nil, true
	}
	k, s := f.rules, &f.scan
	tree := k.loadTree()
	*s = objectScan{namespace: namespace, group: k.kind.Group, scopes: k.scopes, interned: s.interned, found: s.found[:0], text: s.text[:0]}
	if k.rule != nil {
		k.rule(s, raw)
	}
	if s.malformed {
		return nil, true
	}
	tree.visitValue(s, raw)
	if k.definition != "" {
		s.found = append(s.found, manifest.Reference{Group: definitions.Group, Kind: definitions.Kind, Name: k.definition, Relation: DefinedBy})
	}
	s.sortFound()
	return s.found, !s.cut
}

// referenceRule adds the references of an object of one kind to s.
type referenceRule func(s *objectScan, raw []byte)

// objectScan is the walk through one object.
type objectScan struct {
	namespace string
	group     string            // of the object
	scopes    kindScopes        // nil where the kinds of the cluster are not known
	interned  map[string]string // texts that many objects have
	found     []manifest.Reference
	text      []byte // of the last string
	malformed bool   // a value has another type than it must have
	cut       bool   // there were more than Max
}

// fieldVisitor is called for each field of an object, element for each element of a list.
type (
	fieldVisitor   func(s *objectScan, key, value []byte)
	elementVisitor func(s *objectScan, value []byte)
)

// walkObject walks the fields of an object; null has none.
func (s *objectScan) walkObject(value []byte, fn fieldVisitor) {
	f := rawjson.ObjectFields(value)
	for f.Next() {
		fn(s, f.Key, f.Value)
	}
	s.malformed = s.malformed || f.Err() != nil
}

// walkList walks the elements of a list; null has none.
func (s *objectScan) walkList(value []byte, fn elementVisitor) {
	e := rawjson.ArrayElements(value)
	for e.Next() {
		fn(s, e.Value)
	}
	s.malformed = s.malformed || e.Err() != nil
}

// valueAt returns the value of a field, "null" when it is missing.
func (s *objectScan) valueAt(value []byte, key string) []byte {
	found := null
	f := rawjson.ObjectFields(value)
	for f.Next() {
		if string(f.Key) == key {
			found = f.Value
		}
	}
	s.malformed = s.malformed || f.Err() != nil
	return found
}

// valueWithin is at, step by step.
func (s *objectScan) valueWithin(value []byte, path ...string) []byte {
	for _, key := range path {
		value = s.valueAt(value, key)
	}
	return value
}

var null = []byte("null")

// decodeString decodes a string; null is the empty one. The result is valid until the next call.
func (s *objectScan) decodeString(value []byte) []byte {
	if rawjson.IsNull(value) {
		return nil
	}
	text, err := rawjson.AppendUnquoted(s.text[:0], value)
	if err != nil {
		s.malformed = true
		return nil
	}
	s.text = text
	return text
}

// addReference adds a reference to the object of the kind, in a namespace or "", whose name is the JSON
// string.
func (s *objectScan) addReference(kind schema.GroupKind, namespace string, name []byte, relation string) {
	if text := s.decodeString(name); len(text) > 0 {
		s.addText(kind, namespace, text, relation)
	}
}

// addText is addReference for a name without quotes and escapes.
func (s *objectScan) addText(kind schema.GroupKind, namespace string, text []byte, relation string) {
	if len(text) > maxText || len(kind.Group) > maxText || len(kind.Kind) > maxText || len(namespace) > maxText {
		return
	}
	// Repetitions are next to each other more often than not: the containers of a Pod, the paths of
	// an Ingress.
	for i := len(s.found) - 1; i >= max(0, len(s.found)-maxLookBack); i-- {
		r := &s.found[i]
		if r.Name == string(text) && r.Kind == kind.Kind && r.Relation == relation && r.Namespace == namespace && r.Group == kind.Group {
			return
		}
	}
	s.found = append(s.found, manifest.Reference{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: string(text), Relation: relation})
	if len(s.found) >= 2*Max {
		s.sortFound()
	}
}

// maxLookBack is how far back refer looks before it allocates a name.
const maxLookBack = 16

// addLocalReference adds a reference into the object's own namespace. The spec of a Pod in a cluster-scoped
// object does not say in which namespace that is.
func (s *objectScan) addLocalReference(kind schema.GroupKind, name []byte, relation string) {
	if s.namespace != "" {
		s.addReference(kind, s.namespace, name, relation)
	}
}

// sortFound sorts what was found, and keeps the first Max: which ones does not depend on the order
// they were found in.
func (s *objectScan) sortFound() {
	slices.SortFunc(s.found, compareReferences)
	s.found = slices.Compact(s.found)
	if len(s.found) > Max {
		clear(s.found[Max:])
		s.found, s.cut = s.found[:Max], true
	}
}

func compareReferences(a, b manifest.Reference) int {
	return cmp.Or(cmp.Compare(a.Relation, b.Relation), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
