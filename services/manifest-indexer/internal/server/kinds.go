package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// errNoKind means that a manifest has no kind of that name.
var errNoKind = errors.New("holds no object of kind")

// shortNames are the short names of built-in kinds as their API server publishes them: a manifest has none.
var shortNames = map[string]string{
	"cm": "configmaps", "ep": "endpoints", "ev": "events", "limits": "limitranges", "ns": "namespaces", "no": "nodes",
	"pvc": "persistentvolumeclaims", "pv": "persistentvolumes", "po": "pods", "rc": "replicationcontrollers", "quota": "resourcequotas",
	"sa": "serviceaccounts", "svc": "services", "crd": "customresourcedefinitions", "ds": "daemonsets", "deploy": "deployments",
	"rs": "replicasets", "sts": "statefulsets", "hpa": "horizontalpodautoscalers", "cj": "cronjobs", "csr": "certificatesigningrequests",
	"ing": "ingresses", "netpol": "networkpolicies", "pdb": "poddisruptionbudgets", "pc": "priorityclasses", "sc": "storageclasses",
}

// findKinds returns the kinds that a name means, the preferred version first: a kind, plural, singular or short
// name in any case, alone or with its group or version and group. The core group goes before others; where
// several others have the kind, the error for the field names them.
func findKinds(kinds []manifest.KindInfo, field, name string) ([]manifest.KindInfo, error) {
	plain, group, qualified := strings.Cut(strings.ToLower(name), ".")
	long := shortNames[plain]
	var named []manifest.KindInfo
	for _, k := range kinds {
		_, _, kind, _ := manifest.SplitKindName(k.Kind)
		if plural := pluralName(k.Resource); plural == plain || plural == long || strings.ToLower(kind) == plain {
			named = append(named, k)
		}
	}
	if qualified {
		named = matchGroup(named, group)
	}
	var groups, resources []string
	for _, k := range named {
		g, _, _, _ := manifest.SplitKindName(k.Kind)
		groups = append(groups, g)
		if !slices.Contains(resources, k.Resource) {
			resources = append(resources, k.Resource)
		}
	}
	switch {
	case len(named) == 0:
		return nil, fmt.Errorf("%w %q", errNoKind, name)
	case len(resources) > 1 && slices.Contains(groups, ""):
		named = slices.DeleteFunc(named, func(k manifest.KindInfo) bool { return strings.Contains(k.Resource, ".") })
	case len(resources) > 1:
		return nil, errgrpc.Field(field, "%q means several kinds of the backup: name one of %s", name, strings.Join(resources, ", "))
	}
	slices.SortStableFunc(named, func(a, b manifest.KindInfo) int {
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
func matchGroup(kinds []manifest.KindInfo, text string) []manifest.KindInfo {
	text = strings.TrimSuffix(text, ".") // "pods.v1." names a version of the core group
	for _, match := range []func(group, version string) bool{
		func(group, _ string) bool { return group == text },
		func(group, version string) bool { return strings.TrimSuffix(version+"."+group, ".") == text },
		func(group, _ string) bool { return strings.HasPrefix(group, text) },
	} {
		var found []manifest.KindInfo
		for _, k := range kinds {
			if group, version, _, _ := manifest.SplitKindName(k.Kind); match(group, version) {
				found = append(found, k)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// explainMissing names the backup in the error of a kind that it does not hold.
func (m *openManifestFile) explainMissing(err error) error {
	if errors.Is(err, errNoKind) {
		return fmt.Errorf("backup %q %w: %w", m.backup, err, errgrpc.ErrNotFound)
	}
	return err
}

// pluralName cuts the group off "deployments.apps".
func pluralName(groupResource string) string {
	name, _, _ := strings.Cut(groupResource, ".")
	return name
}
