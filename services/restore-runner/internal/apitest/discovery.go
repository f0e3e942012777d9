package apitest

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discovery answers what the server serves, in the form every Kubernetes version understands.
func (s *Server) discovery(w http.ResponseWriter, r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case path == "api":
		reply(w, http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
	case path == "apis":
		reply(w, http.StatusOK, s.groups())
	case path == "api/v1":
		reply(w, http.StatusOK, s.resources("v1"))
	case strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 2:
		reply(w, http.StatusOK, s.resources(strings.TrimPrefix(path, "apis/")))
	default:
		return false
	}
	return true
}

func (s *Server) groups() metav1.APIGroupList {
	var out metav1.APIGroupList
	seen := map[string]bool{}
	for key := range s.kinds {
		parts := strings.Split(key, "/")
		if len(parts) != 3 || seen[parts[0]] {
			continue
		}
		seen[parts[0]] = true
		version := metav1.GroupVersionForDiscovery{GroupVersion: parts[0] + "/" + parts[1], Version: parts[1]}
		out.Groups = append(out.Groups, metav1.APIGroup{
			Name: parts[0], PreferredVersion: version, Versions: []metav1.GroupVersionForDiscovery{version},
		})
	}
	return out
}

func (s *Server) resources(groupVersion string) metav1.APIResourceList {
	out := metav1.APIResourceList{GroupVersion: groupVersion}
	for key, kind := range s.kinds {
		if key == groupVersion+"/"+kind.Name {
			out.APIResources = append(out.APIResources, kind)
		}
	}
	return out
}
