package action

import (
	"cmp"
	"slices"
	"strings"
)

// Merge puts the built-in actions and those of plugins into the one order in which they run:
// alphanumeric by name, but those that begin operations with a key last. An action of a plugin that
// has the name of a built-in one is not among them but in hidden, for the caller to warn of.
func Merge[A Action](builtin, plugins []A) (merged, hidden []A) {
	own := make(map[string]struct{}, len(builtin))
	for _, a := range builtin {
		own[a.Name()] = struct{}{}
	}
	merged = slices.Clone(builtin)
	for _, a := range plugins {
		if _, taken := own[a.Name()]; taken {
			hidden = append(hidden, a)
			continue
		}
		merged = append(merged, a)
	}
	slices.SortStableFunc(merged, func(a, b A) int {
		return cmp.Or(cmp.Compare(mergeOrder(a), mergeOrder(b)), strings.Compare(a.Name(), b.Name()))
	})
	return merged, hidden
}

// mergeOrder is 1 for an action that is given what all others made of an object.
func mergeOrder(a any) int {
	switch a.(type) {
	case BackupStarter, RestoreStarter:
		return 1
	}
	return 0
}
