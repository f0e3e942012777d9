package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MapVar adds a flag of comma-separated pairs "key<separator>value" to fs. It may be given several
// times; a key given twice is an error.
func MapVar(fs *pflag.FlagSet, target *map[string]string, name, separator, usage string) {
	fs.Func(name, usage+" (`key"+separator+"value,...`)", func(value string) error {
		for pair := range strings.SplitSeq(value, ",") {
			key, val, ok := strings.Cut(pair, separator)
			key, val = strings.TrimSpace(key), strings.TrimSpace(val)
			if !ok || key == "" {
				return fmt.Errorf("%q is not of the form key%svalue", pair, separator)
			}
			if *target == nil {
				*target = map[string]string{}
			}
			if _, twice := (*target)[key]; twice {
				return fmt.Errorf("key %q is given twice", key)
			}
			(*target)[key] = val
		}
		return nil
	})
}

// OptionalBoolVar adds a flag with three states to fs: unset, true and false. Without a value it
// means true.
func OptionalBoolVar(fs *pflag.FlagSet, target **bool, name, usage string) {
	fs.BoolFunc(name, usage+" (true or =false; not given: neither)", func(value string) error {
		parsed, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is not true or false", value)
		}
		*target = &parsed
		return nil
	})
}

// SelectorVar adds a flag with one label selector to fs, which is read as kubectl does.
func SelectorVar(fs *pflag.FlagSet, target **metav1.LabelSelector, name, short, usage string) {
	fs.FuncP(name, short, usage, func(value string) (err error) {
		*target, err = metav1.ParseToLabelSelector(value)
		return err
	})
}

// OrSelectorVar adds a flag of selectors joined by " or " to fs, any of which may match.
func OrSelectorVar(fs *pflag.FlagSet, target *[]*metav1.LabelSelector, name, usage string) {
	fs.Func(name, usage, func(value string) error {
		for one := range strings.SplitSeq(value, " or ") {
			parsed, err := metav1.ParseToLabelSelector(strings.TrimSpace(one))
			if err != nil {
				return err
			}
			*target = append(*target, parsed)
		}
		return nil
	})
}
