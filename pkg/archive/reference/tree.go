package reference

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// fieldTree are the rules of one kind by their paths, so that one walk through an object evaluates all of
// them. It does not change once built.
type fieldTree struct {
	step     string
	children []*fieldTree
	target   *namedTarget // nil where no rule ends
}

// namedTarget is what a rule says of the object that a field names.
type namedTarget struct {
	kind      schema.GroupKind
	nearby    bool // the group is that of the object itself, or one above it
	pods      bool // the field is the spec of a Pod
	ignore    bool
	namespace string
	relation  string
	reserved  string // a word that is no name
}

// targetOf is what a rule says.
func targetOf(r *Rule) *namedTarget {
	t := &namedTarget{namespace: r.Namespace, relation: r.Relation, ignore: r.Ignore, reserved: r.reserved}
	if t.relation == "" {
		t.relation = Names
	}
	t.kind.Kind, t.kind.Group, _ = strings.Cut(r.To, ".")
	if t.nearby = t.kind.Group == "*" || r.To == ""; t.nearby {
		t.kind.Group = ""
	}
	return t
}

// addTarget adds a rule, unless there is one for the field.
func (n *fieldTree) addTarget(steps []string, t *namedTarget) bool {
	for _, step := range steps {
		at, found := n.childAt([]byte(step))
		if !found {
			n.children = slices.Insert(n.children, at, &fieldTree{step: step})
		}
		n = n.children[at]
	}
	if n.target != nil {
		return false
	}
	n.target = t
	return true
}

// childAt returns where the child of a step is, or would be.
func (n *fieldTree) childAt(step []byte) (int, bool) {
	low, high := 0, len(n.children)
	for low < high { // written out: a function to compare with allocates for each field
		if mid := (low + high) / 2; n.children[mid].step < string(step) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, low < len(n.children) && n.children[low].step == string(step)
}

// visitValue finds what the value at n, and what is below it, names. A value of another type than the
// rules expect names nothing.
func (n *fieldTree) visitValue(s *objectScan, value []byte) {
	if n.target != nil {
		if n.target.ignore {
			return
		}
		s.addNamed(n.target, value)
	}
	if len(n.children) == 0 || len(value) == 0 {
		return
	}
	switch value[0] {
	case '[':
		if at, ok := n.childAt([]byte(listStep)); ok {
			for e := rawjson.ArrayElements(value); e.Next(); {
				n.children[at].visitValue(s, e.Value)
			}
		}
	case '{':
		f := rawjson.ObjectFields(value)
		for left := len(n.children); left > 0 && f.Next(); {
			if at, ok := n.childAt(f.Key); ok {
				n.children[at].visitValue(s, f.Value)
				left--
			}
		}
	}
}

// namedFields are the fields of an object that names another one.
type namedFields struct{ name, namespace, kind, group, version []byte }

// addNamed adds a reference to what a value names.
func (s *objectScan) addNamed(t *namedTarget, value []byte) {
	var named namedFields
	switch {
	case len(value) == 0:
		return
	case t.pods:
		podSpec(s, value)
		return
	case value[0] == '"':
		named.name = value
	case value[0] == '{':
		named = readNamed(value)
	}
	kind, known := s.namedKind(t, &named)
	namespace, name := s.internText(named.namespace), s.plainText(named.name)
	if from, rest, ok := bytes.Cut(name, []byte("/")); ok { // "namespace/name", as some APIs write it
		namespace, name = string(from), rest
	}
	if !known || !isObjectName(name) || string(name) == t.reserved {
		return
	}
	if namespace = cmp.Or(namespace, t.namespace, s.namespace); s.placeKnown(kind, &namespace) {
		s.addText(kind, namespace, name, t.relation)
	}
}

// placeKnown empties the namespace of a cluster-scoped kind. It reports whether the place of the object is
// known: a cluster-scoped object may name one of a namespace without saying which.
func (s *objectScan) placeKnown(kind schema.GroupKind, namespace *string) bool {
	namespaced, known := s.kindScope(kind)
	if known && !namespaced {
		*namespace = ""
	}
	return !known || !namespaced || *namespace != ""
}

// readNamed reads the fields of an object that names another one.
func readNamed(value []byte) (named namedFields) {
	for f := rawjson.ObjectFields(value); f.Next(); {
		switch string(f.Key) {
		case "name":
			named.name = f.Value
		case "namespace":
			named.namespace = f.Value
		case "kind":
			named.kind = f.Value
		case "apiGroup", "group":
			named.group = f.Value
		case "apiVersion":
			named.version = f.Value
		}
	}
	return named
}

// namedKind returns the kind of the object that is named.
func (s *objectScan) namedKind(t *namedTarget, named *namedFields) (schema.GroupKind, bool) {
	kind := t.kind
	if own := s.internText(named.kind); own != "" {
		kind.Kind = own
	}
	switch {
	case kind.Kind == "":
		return kind, false
	case isText(named.version):
		group, _, qualified := strings.Cut(s.internText(named.version), "/")
		if kind.Group = group; !qualified {
			kind.Group = ""
		}
	case isText(named.group):
		kind.Group = s.internText(named.group)
	case t.nearby:
		return s.nearbyKind(kind.Kind, t.kind.Kind == "")
	}
	return kind, true
}

// nearbyKind returns the kind in the object's own group or, if the cluster does not serve it there, in the
// nearest group above it ("aws.example.com" for "s3.aws.example.com"), or in the core group.
func (s *objectScan) nearbyKind(name string, typed bool) (schema.GroupKind, bool) {
	kind := schema.GroupKind{Group: s.group, Kind: name}
	if s.scopes == nil {
		return kind, !typed // no guess where only the object says what it names
	}
	for {
		if _, served := s.scopes(kind); served || kind.Group == "" {
			return kind, served
		}
		_, kind.Group, _ = strings.Cut(kind.Group, ".")
	}
}

// kindScope reports whether the objects of a kind have a namespace, and whether that is known.
func (s *objectScan) kindScope(kind schema.GroupKind) (namespaced, known bool) {
	if s.scopes != nil {
		if namespaced, served := s.scopes(kind); served {
			return namespaced, true
		}
	}
	if slices.Contains(clusterKinds, kind) {
		return false, true
	}
	return true, kind.Group == ""
}

// isText reports whether a value is a string.
func isText(value []byte) bool { return len(value) >= 2 && value[0] == '"' }

// plainText returns the text of a JSON string, nothing for any other value. It is valid until the next call.
func (s *objectScan) plainText(value []byte) []byte {
	switch {
	case !isText(value):
		return nil
	case bytes.IndexByte(value, '\\') < 0:
		return value[1 : len(value)-1]
	}
	return s.decodeString(value)
}

// maxInterned is how many texts of kinds, groups and namespaces are kept: few differ.
const maxInterned = 64

// internText returns the text of a JSON string, once for all objects.
func (s *objectScan) internText(value []byte) string {
	text := s.plainText(value)
	if known, ok := s.interned[string(text)]; ok || len(text) == 0 {
		return known
	}
	out := string(text)
	if s.interned == nil {
		s.interned = map[string]string{}
	}
	if len(s.interned) < maxInterned {
		s.interned[out] = out
	}
	return out
}

// isObjectName reports whether a text can be the name of an object: free text is not.
func isObjectName(name []byte) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != ':' && c != '_' {
			return false
		}
	}
	return len(name) > 0
}
