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

// answerDiscovery answers what the server serves, in the form every Kubernetes version understands.
func (s *Server) answerDiscovery(w http.ResponseWriter, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch path = strings.Trim(path, "/"); {
	case path == "api":
		writeReply(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "apis":
		writeReply(w, http.StatusOK, s.kinds.apiGroups(s.DeadGroups))
	case path == "apis/apiregistration.k8s.io/v1/apiservices" && s.kinds.findKind(apiServices) == nil:
		writeReply(w, http.StatusOK, s.kinds.managedGroups())
	case path == "api/v1", strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 2:
		_, groupVersion, _ := strings.Cut(path, "/")
		if list := s.kinds.resourcesOf(groupVersion); len(list.APIResources) > 0 {
			writeReply(w, http.StatusOK, list)
			return true
		}
		if group, _, _ := strings.Cut(groupVersion, "/"); slices.Contains(s.DeadGroups, group) {
			writeFailure(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "nothing answers "+path)
			return true
		}
		writeFailure(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	default:
		return false
	}
	return true
}
