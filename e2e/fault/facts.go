package fault

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Facts are what can be observed after a job, by name: a phase, a count, the hash of a stored
// object, a key of the bucket. Names and values hold placeholders for what differs between two jobs
// by right, such as their names.
type Facts map[string]string

// ErrDiffers means that a job did not end like the undisturbed one.
var ErrDiffers = errors.New("not what the undisturbed run gives")

// shown bounds how many differences an error names.
const shown = 12

// Compare returns nil when got holds the same facts; the error wraps ErrDiffers.
func (f Facts) Compare(got Facts) error {
	names := Facts{}
	maps.Copy(names, f)
	maps.Copy(names, got)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		want, expected := f[name]
		have, present := got[name]
		switch {
		case !present:
			lines = append(lines, fmt.Sprintf("- %s: %s", name, shortValue(want)))
		case !expected:
			lines = append(lines, fmt.Sprintf("+ %s: %s", name, shortValue(have)))
		case want != have:
			lines = append(lines, fmt.Sprintf("! %s: %s instead of %s", name, shortValue(have), shortValue(want)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	more := ""
	if n := len(lines) - shown; n > 0 {
		lines, more = lines[:shown], fmt.Sprintf("\n  and %d more", n)
	}
	return fmt.Errorf("%w:\n  %s%s", ErrDiffers, strings.Join(lines, "\n  "), more)
}

// Changed returns the facts with changes in their place, as regular expressions; an empty one
// removes a fact.
func (f Facts) Changed(changes Facts) Facts {
	changed := maps.Clone(f)
	for name, pattern := range changes {
		if changed[name] = pattern; pattern == "" {
			delete(changed, name)
		}
	}
	return changed
}

// Matched returns the facts, of which those that match a change are its regular expression: they
// compare with Changed.
func (f Facts) Matched(changes Facts) Facts {
	matched := maps.Clone(f)
	for name, pattern := range changes {
		if value, present := f[name]; present && pattern != "" && regexp.MustCompile(pattern).MatchString(value) {
			matched[name] = pattern
		}
	}
	return matched
}

// addPrefixed copies facts, each name after a prefix.
func (f Facts) addPrefixed(prefix string, more map[string]string) {
	for name, value := range more {
		f[prefix+name] = value
	}
}

func shortValue(value string) string {
	const most = 300
	if len(value) > most {
		return value[:most] + "…"
	}
	return value
}
