package command

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mapValue is a flag of comma-separated pairs. It may be given several times; a key given twice is an
// error.
type mapValue struct {
	target    *map[string]string
	separator string
}

// MapVar adds a flag of pairs "key<separator>value" to fs.
func MapVar(fs *pflag.FlagSet, target *map[string]string, name, separator, usage string) {
	fs.Var(&mapValue{target: target, separator: separator}, name, usage)
}

// Set adds the pairs of one occurrence of the flag.
func (m *mapValue) Set(value string) error {
	for pair := range strings.SplitSeq(value, ",") {
		key, val, ok := strings.Cut(pair, m.separator)
		key, val = strings.TrimSpace(key), strings.TrimSpace(val)
		if !ok || key == "" {
			return fmt.Errorf("%q is not of the form key%svalue", pair, m.separator)
		}
		if *m.target == nil {
			*m.target = map[string]string{}
		}
		if _, twice := (*m.target)[key]; twice {
			return fmt.Errorf("key %q is given twice", key)
		}
		(*m.target)[key] = val
	}
	return nil
}

// String returns the pairs in order of their keys.
func (m *mapValue) String() string {
	if m.target == nil {
		return ""
	}
	pairs := make([]string, 0, len(*m.target))
	for _, key := range slices.Sorted(maps.Keys(*m.target)) {
		pairs = append(pairs, key+m.separator+(*m.target)[key])
	}
	return strings.Join(pairs, ",")
}

// Type names the kind of value in the help.
func (m *mapValue) Type() string { return "key" + m.separator + "value,..." }

// optionalBoolValue is a flag with three states: unset, true and false.
type optionalBoolValue struct{ target **bool }

// OptionalBoolVar adds a tri-state flag to fs; without a value it means true.
func OptionalBoolVar(fs *pflag.FlagSet, target **bool, name, usage string) {
	fs.VarPF(&optionalBoolValue{target: target}, name, "", usage).NoOptDefVal = "true"
}

// Set parses true or false.
func (b *optionalBoolValue) Set(value string) error {
	parsed, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%q is not true or false", value)
	}
	*b.target = &parsed
	return nil
}

// String returns the value, or nothing while the flag is unset.
func (b *optionalBoolValue) String() string {
	if b.target == nil || *b.target == nil {
		return ""
	}
	return strconv.FormatBool(**b.target)
}

// Type names the kind of value in the help.
func (b *optionalBoolValue) Type() string { return "optional-bool" }

// selectorValue is a flag with one label selector.
type selectorValue struct{ target **metav1.LabelSelector }

// SelectorVar adds a flag with one label selector to fs.
func SelectorVar(fs *pflag.FlagSet, target **metav1.LabelSelector, name, short, usage string) {
	fs.VarP(&selectorValue{target: target}, name, short, usage)
}

// Set parses a selector as kubectl does.
func (s *selectorValue) Set(value string) error {
	parsed, err := metav1.ParseToLabelSelector(value)
	if err != nil {
		return err
	}
	*s.target = parsed
	return nil
}

// String returns the selector.
func (s *selectorValue) String() string {
	if s.target == nil || *s.target == nil {
		return ""
	}
	return metav1.FormatLabelSelector(*s.target)
}

// Type names the kind of value in the help.
func (s *selectorValue) Type() string { return "selector" }

// orSelectorValue is a flag with several label selectors, any of which may match.
type orSelectorValue struct{ target *[]*metav1.LabelSelector }

// OrSelectorVar adds a flag of selectors joined by " or " to fs.
func OrSelectorVar(fs *pflag.FlagSet, target *[]*metav1.LabelSelector, name, usage string) {
	fs.Var(&orSelectorValue{target: target}, name, usage)
}

// Set parses selectors joined by " or ".
func (o *orSelectorValue) Set(value string) error {
	for one := range strings.SplitSeq(value, " or ") {
		parsed, err := metav1.ParseToLabelSelector(strings.TrimSpace(one))
		if err != nil {
			return err
		}
		*o.target = append(*o.target, parsed)
	}
	return nil
}

// String returns the selectors.
func (o *orSelectorValue) String() string {
	if o.target == nil {
		return ""
	}
	each := make([]string, 0, len(*o.target))
	for _, s := range *o.target {
		each = append(each, metav1.FormatLabelSelector(s))
	}
	return strings.Join(each, " or ")
}

// Type names the kind of value in the help.
func (o *orSelectorValue) Type() string { return "selectors" }
