package kubetest

import (
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiServices are served by those who need more of them than which group versions are of custom
// resources.
var apiServices = target{group: "apiregistration.k8s.io", version: "v1", resource: "apiservices"}

// discovery answers what the server serves, in the form every Kubernetes version understands.
func (s *Server) discovery(w http.ResponseWriter, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch path = strings.Trim(path, "/"); {
	case path == "api":
		reply(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "apis":
		reply(w, http.StatusOK, s.groups())
	case path == "apis/apiregistration.k8s.io/v1/apiservices" && s.kind(apiServices) == nil:
		reply(w, http.StatusOK, s.managed())
	case path == "api/v1", strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 2:
		_, groupVersion, _ := strings.Cut(path, "/")
		if list := s.resources(groupVersion); len(list.APIResources) > 0 {
			reply(w, http.StatusOK, list)
			return true
		}
		if group, _, _ := strings.Cut(groupVersion, "/"); slices.Contains(s.DeadGroups, group) {
			fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "nothing answers "+path)
			return true
		}
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	default:
		return false
	}
	return true
}

func (s *Server) groups() metav1.APIGroupList {
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
	for _, k := range s.kinds {
		add(k.Group, k.Version)
	}
	for _, g := range s.DeadGroups {
		add(g, "v1")
	}
	return out
}

// managed marks the group versions of custom resources as a server does.
func (s *Server) managed() map[string]any {
	items := []any{}
	for i := range s.kinds {
		if k := &s.kinds[i]; k.Custom {
			items = append(items, map[string]any{
				"metadata": map[string]any{"labels": map[string]string{"kube-aggregator.kubernetes.io/automanaged": "true"}},
				"spec":     map[string]string{"group": k.Group, "version": k.Version},
			})
		}
	}
	return map[string]any{"items": items}
}

func (s *Server) resources(groupVersion string) metav1.APIResourceList {
	out := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, k := range s.kinds {
		if k.groupVersion() == groupVersion {
			out.APIResources = append(out.APIResources, metav1.APIResource{Name: k.Resource, Kind: k.Kind, Namespaced: k.Namespaced,
				SingularName: strings.ToLower(k.Kind), Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}})
		}
	}
	return out
}

// define serves the kinds of a definition at once.
func (s *Server) define(definition map[string]any) {
	spec, _ := definition["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		s.serve(Kind{
			Group: text(spec["group"]), Version: text(version["name"]), Resource: text(names["plural"]), Kind: text(names["kind"]),
			Namespaced: spec["scope"] == "Namespaced", Custom: true,
		})
	}
	condition := func(name string) any { return map[string]any{"type": name, "status": "True"} }
	definition["status"] = map[string]any{"conditions": []any{condition("Established"), condition("NamesAccepted")}}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// builtIn reports whether a group is one of Kubernetes itself.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
