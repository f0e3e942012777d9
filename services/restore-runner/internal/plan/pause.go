package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// PauseConfigMap is the name of the ConfigMap in the server namespace that adds rules: each key of its
// data holds one as YAML.
const PauseConfigMap = "holdfast-restore-pause"

// PauseRule is how objects of a kind are paused. One of Field, Annotation and Label is set.
type PauseRule struct {
	// Group is an API group, or "*." and what groups end with. Kind may be "*".
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// Field is a path of names, "spec.paused".
	Field      string `json:"field,omitempty"`
	Annotation string `json:"annotation,omitempty"`
	Label      string `json:"label,omitempty"`
	// Value is the value that pauses. Without one the rule excludes the kind from being paused.
	Value any `json:"value,omitempty"`
	// Source is where that is documented.
	Source string `json:"source,omitempty"`
}

// PauseRules have the resources of some operators be restored paused and first: what they own has its
// reference from the beginning, and their mark is as in the backup again when the restore ends. The
// first rule that matches a kind counts.
type PauseRules []PauseRule

// ParsePauseRules returns the rules of a ConfigMap's data, before the built-in ones, and one error for each
// key that holds none.
func ParsePauseRules(data map[string]string) (PauseRules, []error) {
	var rules PauseRules
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var r PauseRule
		err := yaml.UnmarshalStrict([]byte(data[key]), &r)
		if err == nil {
			err = r.checkRule()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ConfigMap %s: data[%s]: %w", PauseConfigMap, key, err))
			continue
		}
		rules = append(rules, r)
	}
	return append(rules, builtinPauses...), errs
}

func (r *PauseRule) checkRule() error {
	marks := 0
	for _, mark := range []string{r.Field, r.Annotation, r.Label} {
		if mark != "" {
			marks++
		}
	}
	_, text := r.Value.(string)
	suffix, wild := strings.CutPrefix(r.Group, "*")
	switch {
	case r.Group == "" || r.Kind == "":
		return errors.New("group and kind are required")
	case wild && (len(suffix) < 2 || suffix[0] != '.'):
		return fmt.Errorf("group: %q is neither a group nor \"*.\" and what groups end with", r.Group)
	case marks == 0 && r.Value == nil:
		return nil // not paused
	case marks != 1:
		return errors.New("exactly one of field, annotation and label is required")
	case r.Value == nil:
		return errors.New("value is required")
	case !text && !isScalar(r.Value):
		return errors.New("value: must be a string, a number or a boolean")
	case r.Field == "" && !text:
		return errors.New("value: that of an annotation or label must be a string")
	case r.Field != "" && (!strings.HasPrefix(r.Field, "spec.") || slices.Contains(strings.Split(r.Field, "."), "")):
		return fmt.Errorf("field: %q is not a path below spec, such as spec.paused", r.Field)
	}
	return nil
}

func isScalar(value any) bool {
	switch value.(type) {
	case bool, float64, int64:
		return true
	}
	return false
}

// For returns the rule of a kind, nil when its objects are not paused.
func (rs PauseRules) For(kind schema.GroupKind) *PauseRule {
	for i := range rs {
		r := &rs[i]
		suffix, wild := strings.CutPrefix(r.Group, "*")
		if (r.Kind == "*" || r.Kind == kind.Kind) && (r.Group == kind.Group || wild && strings.HasSuffix(kind.Group, suffix)) {
			if r.Value == nil {
				return nil
			}
			return r
		}
	}
	return nil
}

func (r *PauseRule) fieldPath() []string {
	switch {
	case r.Annotation != "":
		return []string{"metadata", "annotations", r.Annotation}
	case r.Label != "":
		return []string{"metadata", "labels", r.Label}
	}
	return strings.Split(r.Field, ".")
}

// Pause marks an object, of which it copies what it changes, and returns the merge patch that
// brings the mark back as it was. False when it had the mark already, so that nothing is to be
// done, or when it cannot have one.
func (r *PauseRule) Pause(body map[string]any) (back map[string]any, paused bool) {
	path := r.fieldPath()
	at, back := body, map[string]any{}
	undo := back
	for _, name := range path[:len(path)-1] {
		child, ok := at[name].(map[string]any)
		if !ok && at[name] != nil {
			return nil, false
		}
		child = maps.Clone(child)
		if child == nil {
			child = map[string]any{}
		}
		at[name] = child
		next := map[string]any{}
		undo[name] = next
		at, undo = child, next
	}
	last := path[len(path)-1]
	if at[last] == r.Value {
		return nil, false
	}
	undo[last] = at[last] // nil takes it away again
	at[last] = r.Value
	return back, true
}
