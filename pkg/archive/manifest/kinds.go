package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoKind means that a manifest has no kind of that name.
var ErrNoKind = errors.New("holds no object of kind")

// AmbiguousKindError means that a name means several kinds of a manifest.
type AmbiguousKindError struct {
	Name string
	// Resources are the names that tell them apart, such as "deployments.apps".
	Resources []string
}

// Error implements error.
func (e *AmbiguousKindError) Error() string {
	return fmt.Sprintf("%q means several kinds of the backup: name one of %s", e.Name, strings.Join(e.Resources, ", "))
}

// shortNames are the short names of built-in kinds as their API server publishes them: a manifest has none.
var shortNames = map[string]string{
	"cm": "configmaps", "ep": "endpoints", "ev": "events", "limits": "limitranges", "ns": "namespaces", "no": "nodes",
	"pvc": "persistentvolumeclaims", "pv": "persistentvolumes", "po": "pods", "rc": "replicationcontrollers", "quota": "resourcequotas",
	"sa": "serviceaccounts", "svc": "services", "crd": "customresourcedefinitions", "ds": "daemonsets", "deploy": "deployments",
	"rs": "replicasets", "sts": "statefulsets", "hpa": "horizontalpodautoscalers", "cj": "cronjobs", "csr": "certificatesigningrequests",
	"ing": "ingresses", "netpol": "networkpolicies", "pdb": "poddisruptionbudgets", "pc": "priorityclasses", "sc": "storageclasses",
}

// FindKinds returns the kinds that a name means, the preferred version first: a kind, plural, singular or short
// name in any case, alone or with its group or version and group. The core group goes before others; where
// several others have the kind, the error is an *AmbiguousKindError. It is ErrNoKind where there is none.
func FindKinds(kinds []KindInfo, name string) ([]KindInfo, error) {
	plain, group, qualified := strings.Cut(strings.ToLower(name), ".")
	long := shortNames[plain]
	var named []KindInfo
	for _, k := range kinds {
		_, _, kind, _ := SplitKindName(k.Kind)
		if plural := k.Plural(); plural == plain || plural == long || strings.ToLower(kind) == plain {
			named = append(named, k)
		}
	}
	if qualified {
		named = matchGroup(named, group)
	}
	var groups, resources []string
	for _, k := range named {
		g, _, _, _ := SplitKindName(k.Kind)
		groups = append(groups, g)
		if !slices.Contains(resources, k.Resource) {
			resources = append(resources, k.Resource)
		}
	}
	switch {
	case len(named) == 0:
		return nil, fmt.Errorf("%w %q", ErrNoKind, name)
	case len(resources) > 1 && slices.Contains(groups, ""):
		named = slices.DeleteFunc(named, func(k KindInfo) bool { return strings.Contains(k.Resource, ".") })
	case len(resources) > 1:
		return nil, &AmbiguousKindError{Name: name, Resources: resources}
	}
	slices.SortStableFunc(named, func(a, b KindInfo) int {
		switch {
		case a.Preferred == b.Preferred:
			return 0
		case a.Preferred:
			return -1
		}
		return 1
	})
	return named, nil
}

// matchGroup returns the kinds of a group, of "version.group", or of the groups that begin with the text:
// the first of these that any kind has.
func matchGroup(kinds []KindInfo, text string) []KindInfo {
	text = strings.TrimSuffix(text, ".") // "pods.v1." names a version of the core group
	for _, match := range []func(group, version string) bool{
		func(group, _ string) bool { return group == text },
		func(group, version string) bool { return strings.TrimSuffix(version+"."+group, ".") == text },
		func(group, _ string) bool { return strings.HasPrefix(group, text) },
	} {
		var found []KindInfo
		for _, k := range kinds {
			if group, version, _, _ := SplitKindName(k.Kind); match(group, version) {
				found = append(found, k)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// Plural returns the resource without its group, such as "deployments".
func (k *KindInfo) Plural() string {
	name, _, _ := strings.Cut(k.Resource, ".")
	return name
}
