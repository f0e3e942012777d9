// Package flags holds the value types of the CLI's flags.
package flags

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Map is a flag of comma-separated pairs. It may be given several times; a key given twice is an
// error.
type Map struct {
	target    *map[string]string
	separator string
}

// MapVar adds a flag of pairs "key<separator>value" to fs.
func MapVar(fs *pflag.FlagSet, target *map[string]string, name, separator, usage string) {
	fs.Var(&Map{target: target, separator: separator}, name, usage)
}

// Set adds the pairs of one occurrence of the flag.
func (m *Map) Set(value string) error {
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
func (m *Map) String() string {
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
func (m *Map) Type() string { return "key" + m.separator + "value,..." }

// OptionalBool is a flag with three states: unset, true and false.
type OptionalBool struct{ target **bool }

// OptionalBoolVar adds a tri-state flag to fs; without a value it means true.
func OptionalBoolVar(fs *pflag.FlagSet, target **bool, name, usage string) {
	fs.VarPF(&OptionalBool{target: target}, name, "", usage).NoOptDefVal = "true"
}

// Set parses true or false.
func (b *OptionalBool) Set(value string) error {
	parsed, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%q is not true or false", value)
	}
	*b.target = &parsed
	return nil
}

// String returns the value, or nothing while the flag is unset.
func (b *OptionalBool) String() string {
	if b.target == nil || *b.target == nil {
		return ""
	}
	return strconv.FormatBool(**b.target)
}

// Type names the kind of value in the help.
func (b *OptionalBool) Type() string { return "optional-bool" }

// Selector is a flag with one label selector.
type Selector struct{ target **metav1.LabelSelector }

// SelectorVar adds a flag with one label selector to fs.
func SelectorVar(fs *pflag.FlagSet, target **metav1.LabelSelector, name, short, usage string) {
	fs.VarP(&Selector{target: target}, name, short, usage)
}

// Set parses a selector as kubectl does.
func (s *Selector) Set(value string) error {
	parsed, err := metav1.ParseToLabelSelector(value)
	if err != nil {
		return err
	}
	*s.target = parsed
	return nil
}

// String returns the selector.
func (s *Selector) String() string {
	if s.target == nil || *s.target == nil {
		return ""
	}
	return metav1.FormatLabelSelector(*s.target)
}

// Type names the kind of value in the help.
func (s *Selector) Type() string { return "selector" }

// OrSelector is a flag with several label selectors, any of which may match.
type OrSelector struct{ target *[]*metav1.LabelSelector }

// OrSelectorVar adds a flag of selectors joined by " or " to fs.
func OrSelectorVar(fs *pflag.FlagSet, target *[]*metav1.LabelSelector, name, usage string) {
	fs.Var(&OrSelector{target: target}, name, usage)
}

// Set parses selectors joined by " or ".
func (o *OrSelector) Set(value string) error {
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
func (o *OrSelector) String() string {
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
func (o *OrSelector) Type() string { return "selectors" }
