package selection

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// IsPattern reports whether a namespace list entry holds a wildcard: '*', '?' or a character class
// '[..]'.
func IsPattern(entry string) bool { return strings.ContainsAny(entry, "*?[") }

// CheckPattern checks one namespace list entry. Wildcards are '*', '?' and '[..]'; '**' and the
// characters |(){}!, are refused, and with its wildcards replaced by a letter the entry must be a
// legal namespace name. The empty entry and '*' are fine. The error wraps ErrPattern.
func CheckPattern(entry string) error {
	if entry == "" || entry == All {
		return nil
	}
	if i := strings.IndexAny(entry, "|(){}!,"); i >= 0 {
		return fmt.Errorf("%w: %q is not supported", ErrPattern, entry[i:i+1])
	}
	if strings.Contains(entry, "**") {
		return fmt.Errorf("%w: \"**\" is not supported", ErrPattern)
	}
	if _, err := path.Match(entry, ""); err != nil {
		return fmt.Errorf("%w: %w", ErrPattern, err)
	}
	if msgs := validation.IsDNS1123Label(withoutWildcards(entry)); len(msgs) > 0 {
		return fmt.Errorf("%w: %s", ErrPattern, strings.Join(msgs, "; "))
	}
	return nil
}

// withoutWildcards replaces each wildcard by the letter x.
func withoutWildcards(entry string) string {
	var b strings.Builder
	for i := 0; i < len(entry); i++ {
		switch entry[i] {
		case '*', '?':
			b.WriteByte('x')
		case '[':
			end := strings.IndexByte(entry[i:], ']')
			if end < 0 {
				return entry // not closed: stays as it is and fails the name check
			}
			i += end
			b.WriteByte('x')
		default:
			b.WriteByte(entry[i])
		}
	}
	return b.String()
}

// ExpandNamespaces resolves validated include and exclude lists against the names of the existing
// namespaces and returns the sorted set of selected names. ["*"] means every namespace, also one
// created later, and is returned only when nothing narrows the choice: includes empty or '*', and
// no excludes. Included names without a wildcard are kept even if no such namespace exists, so that
// the backup can report them. Includes that are all empty ([""]) name no namespace. An empty result
// selects no namespace at all.
func ExpandNamespaces(includes, excludes, live []string) []string {
	all := len(includes) == 0 || slices.Contains(includes, All)
	includes, excludes = withoutEmpty(includes), withoutEmpty(excludes)
	if all && len(excludes) == 0 {
		return []string{All}
	}
	out := make([]string, 0, len(includes))
	for _, name := range live {
		if (all || MatchesAny(includes, name)) && !MatchesAny(excludes, name) {
			out = append(out, name)
		}
	}
	for _, name := range includes {
		if !IsPattern(name) && !MatchesAny(excludes, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func withoutEmpty(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
}

// MatchesAny reports whether the name is one of the patterns, which CheckPattern has accepted.
func MatchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if p == name || p == All {
			return true
		}
		if IsPattern(p) {
			// Validated patterns cannot be malformed; a malformed one matches nothing.
			if ok, err := path.Match(p, name); ok && err == nil {
				return true
			}
		}
	}
	return false
}
