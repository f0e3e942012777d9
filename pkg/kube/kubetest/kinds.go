package kubetest

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kinds are what a server serves, in the order in which it began to.
type kinds []Kind

// serveKind adds a kind, or replaces the one of the same name and version.
func (all *kinds) serveKind(k Kind) {
	if known := all.findKind(target{group: k.Group, version: k.Version, resource: k.Resource}); known != nil {
		*known = k
		return
	}
	*all = append(*all, k)
}

// findKind returns the kind that a path names; nil when it is not served.
func (all kinds) findKind(t target) *Kind {
	for i := range all {
		if k := &all[i]; k.Group == t.group && k.Version == t.version && k.Resource == t.resource {
			return k
		}
	}
	return nil
}

// apiGroups are those of the kinds, and the dead ones.
func (all kinds) apiGroups(dead []string) metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	add := func(group, version string) {
		if group == "" {
			return
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: group + "/" + version, Version: version}
		i := slices.IndexFunc(out.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
		switch {
		case i < 0:
			out.Groups = append(out.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		case !slices.Contains(out.Groups[i].Versions, v):
			out.Groups[i].Versions = append(out.Groups[i].Versions, v)
		}
	}
	for _, k := range all {
		add(k.Group, k.Version)
	}
	for _, g := range dead {
		add(g, "v1")
	}
	return out
}

// managedGroups marks the group versions of custom resources as a server does.
func (all kinds) managedGroups() map[string]any {
	items := []any{}
	for i := range all {
		if k := &all[i]; k.Custom {
			items = append(items, map[string]any{
				"metadata": map[string]any{"labels": map[string]string{"kube-aggregator.kubernetes.io/automanaged": "true"}},
				"spec":     map[string]string{"group": k.Group, "version": k.Version},
			})
		}
	}
	return map[string]any{"items": items}
}

func (all kinds) resourcesOf(groupVersion string) metav1.APIResourceList {
	out := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, k := range all {
		if k.groupVersion() == groupVersion {
			out.APIResources = append(out.APIResources, metav1.APIResource{Name: k.Resource, Kind: k.Kind, Namespaced: k.Namespaced,
				SingularName: strings.ToLower(k.Kind), Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}})
			if !k.PlainStatus {
				out.APIResources = append(out.APIResources, metav1.APIResource{Name: k.Resource + "/status", Kind: k.Kind, Namespaced: k.Namespaced})
			}
		}
	}
	return out
}

// serveDefinition serves the kinds of a definition at once.
func (all *kinds) serveDefinition(definition map[string]any) {
	spec, _ := definition["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		all.serveKind(Kind{
			Group: stringOf(spec["group"]), Version: stringOf(version["name"]), Resource: stringOf(names["plural"]), Kind: stringOf(names["kind"]),
			Namespaced: spec["scope"] == "Namespaced", Custom: true, PlainStatus: !hasStatus(version),
		})
	}
	condition := func(name string) any { return map[string]any{"type": name, "status": "True"} }
	definition["status"] = map[string]any{"conditions": []any{condition("Established"), condition("NamesAccepted")}}
}

// hasStatus reports that a version of a definition has the status subresource.
func hasStatus(version map[string]any) bool {
	subresources, _ := version["subresources"].(map[string]any)
	return subresources["status"] != nil
}

// builtIn reports whether a group is one of Kubernetes itself.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
