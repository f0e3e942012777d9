package ledger

import (
	"slices"
	"strings"
)

// All in a list of namespaces means every namespace, also one that is created later. Alone it
// overlaps every other list, even an empty one.
const All = "*"

// exclusionPrefix before a name, in a list with All, takes that namespace out.
const exclusionPrefix = "!"

// AllBut is the list of all namespaces except some, sorted.
func AllBut(names []string) []string {
	out := make([]string, 0, len(names)+1)
	for _, name := range names {
		out = append(out, exclusionPrefix+name)
	}
	return sortSpaces(append(out, All))
}

// IsAll reports whether a sorted list takes every namespace, but perhaps for some.
func IsAll(namespaces []string) bool {
	return len(namespaces) > 0 && namespaces[len(namespaces)-1] == All
}

// ExceptedNamespaces returns the names that a sorted list with All leaves out.
func ExceptedNamespaces(namespaces []string) []string {
	var out []string
	for _, ns := range namespaces {
		if name, ok := strings.CutPrefix(ns, exclusionPrefix); ok {
			out = append(out, name)
		}
	}
	return out
}

// sortSpaces sorts a list of namespaces. With All only the exceptions stay, and All comes last: "!" and
// "*" sort before every name.
func sortSpaces(namespaces []string) []string {
	sorted := slices.Compact(slices.Sorted(slices.Values(namespaces)))
	if at, all := slices.BinarySearch(sorted, All); all {
		return sorted[:at+1]
	}
	return sorted
}

// Overlap returns what two sorted lists of namespaces share. All shares everything with anything
// but what it leaves out: the result is then the rest of the other list, or a list with All.
func Overlap(a, b []string) []string {
	switch {
	case IsAll(a) && IsAll(b):
		if len(a) == 1 {
			return b
		}
		if len(b) == 1 {
			return a
		}
		return sortSpaces(slices.Concat(a, b))
	case IsAll(a):
		return namesWithin(a, b)
	case IsAll(b):
		return namesWithin(b, a)
	}
	var shared []string
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0], b[0]); {
		case c < 0:
			a = a[1:]
		case c > 0:
			b = b[1:]
		default:
			shared = append(shared, a[0])
			a, b = a[1:], b[1:]
		}
	}
	return shared
}

// namesWithin returns the names that a list with All does not leave out.
func namesWithin(all, names []string) []string {
	if len(names) == 0 {
		return all
	}
	if len(all) == 1 {
		return names
	}
	var out []string
	for _, name := range names {
		if _, left := slices.BinarySearch(all, exclusionPrefix+name); !left {
			out = append(out, name)
		}
	}
	return out
}
