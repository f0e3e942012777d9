package reference

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// ConfigMap is the name of the ConfigMap in the server namespace that adds rules: each key of its data
// holds one as YAML.
const ConfigMap = "holdfast-references"

// Rule says where objects of a kind name another object. Of several rules for one field the first one
// counts.
type Rule struct {
	// Group is an API group, or "*." and what groups end with. Kind may be "*".
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// Field is the place of the name, or of an object with the field "name": names of fields with dots
	// between them, "[]" behind a list, and "[example.com/x]" for a name that has dots.
	Field string `json:"field"`
	// To is the kind that is named: "Secret", "Issuer.cert-manager.io", or "Config.*" for the group of the
	// object itself or, where the cluster serves the kind there, one above it. The fields "kind" and
	// "apiVersion", "apiGroup" or "group" beside the name come before it; without To they are required.
	To string `json:"to,omitempty"`
	// Namespace is where the named object is, if no field "namespace" beside the name says it. By default that
	// is the namespace of the object itself.
	Namespace string `json:"namespace,omitempty"`
	// Relation is how the manifest calls the reference; Names by default.
	Relation string `json:"relation,omitempty"`
	// Ignore takes the field out, and what is below it: what is there is no reference.
	Ignore bool `json:"ignore,omitempty"`
	// Source is where the field is documented.
	Source string `json:"source,omitempty"`

	reserved string // a word that is no name
}

// Bounds of rules.
const (
	maxSteps     = 16  // of a field's path
	maxKindRules = 200 // for one kind
)

// ParseRules returns the rules of a ConfigMap's data, and one error for each key that holds none.
func ParseRules(data map[string]string) (rules []Rule, errs []error) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var r Rule
		err := yaml.UnmarshalStrict([]byte(data[key]), &r)
		if err == nil {
			err = r.checkRule()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap %s: data[%s]: %w", ConfigMap, key, err))
			continue
		}
		rules = append(rules, r)
	}
	return rules, errs
}

// reservedRelations have a meaning for restores, or for owner references.
var reservedRelations = []string{manifest.Owns, Binds, Calls, DefinedBy, FilledFrom, Grants, GrantsTo, Holds, LimitedTo}

func (r *Rule) checkRule() error {
	suffix, wild := strings.CutPrefix(r.Group, "*")
	_, err := splitField(r.Field)
	switch {
	case r.Kind == "" || r.Field == "":
		return errors.New("kind and field are required")
	case wild && (len(suffix) < 2 || suffix[0] != '.'):
		return fmt.Errorf("group: %q is neither a group nor \"*.\" and what groups end with", r.Group)
	case r.Kind == "*" && r.Group == "":
		return errors.New("group: is required where kind is *")
	case err != nil:
		return fmt.Errorf("field: %w", err)
	case len(r.To) > maxText || len(r.Namespace) > maxText || len(r.Relation) > maxText:
		return fmt.Errorf("to, namespace, relation: are longer than %d bytes", maxText)
	case slices.Contains(reservedRelations, r.Relation):
		return fmt.Errorf("relation: %s has a meaning of its own: name another one", r.Relation)
	}
	return nil
}

// matchesKind reports whether the rule is for a kind.
func (r *Rule) matchesKind(kind schema.GroupKind) bool {
	suffix, wild := strings.CutPrefix(r.Group, "*")
	return (r.Kind == "*" || r.Kind == kind.Kind) && (r.Group == kind.Group || wild && strings.HasSuffix(kind.Group, suffix))
}

// listStep is the step from a list to its elements.
const listStep = "[]"

// splitField returns the steps of a field's path.
func splitField(path string) (steps []string, err error) {
	for rest := path; rest != ""; {
		name, after := rest, ""
		if i := strings.IndexAny(rest, ".["); i >= 0 {
			name, after = rest[:i], rest[i:]
		}
		if name == "" && !strings.HasPrefix(after, "[") || name == "" && len(steps) == 0 {
			return nil, fmt.Errorf("%q is not a path such as spec.parts[].secretName", path)
		}
		if name != "" {
			steps = append(steps, name)
		}
		for strings.HasPrefix(after, "[") {
			inside, behind, closed := strings.Cut(after[1:], "]")
			if !closed {
				return nil, fmt.Errorf("%q has an open bracket", path)
			}
			if inside == "" {
				inside = listStep
			}
			steps, after = append(steps, inside), behind
		}
		rest = strings.TrimPrefix(after, ".")
		if after != "" && (rest == "" || rest == after) {
			return nil, fmt.Errorf("%q is not a path such as spec.parts[].secretName", path)
		}
	}
	if len(steps) > maxSteps {
		return nil, fmt.Errorf("%q has more than %d steps", path, maxSteps)
	}
	return steps, nil
}
