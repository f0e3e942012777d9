// Package kubetest is an API server for tests, with behaviour: it stores objects and their history,
// assigns identities and revisions, pages lists at exact revisions, compacts, has namespaces,
// definitions and discovery, applies patches, collects garbage when a test calls for it, and fails
// on request. It imports nothing of ours; only tests import it.
//
// Conform compares it with what a real API server does. It differs on purpose in these: a create
// with a UID is refused, where a real server replaces the UID; definitions are established at once;
// garbage is collected by Collect alone; strategic merge patches are applied as merge patches;
// nothing can be watched; resources but for the kinds named at the start have no schema or scale;
// the path of a status is another path of the object.
package kubetest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// firstRevision is the revision of a new server.
const firstRevision = 1000

// Kind is a kind of objects the server serves.
type Kind struct {
	Group, Version, Kind, Resource string
	Namespaced                     bool
	// Custom kinds are defined by a CustomResourceDefinition: they send their list metadata last
	// and type meta with each item.
	Custom bool
	// Own, if not zero, is the revision of the storage that holds this kind alone. It was empty before
	// that revision, and keeps every later one.
	Own int64
	// Dead kinds are discovered and answer every list with 500.
	Dead bool
	// PlainStatus kinds have no status subresource.
	PlainStatus bool
	// Narrow kinds may be listed in one namespace at a time only.
	Narrow bool
}

func (k *Kind) groupVersion() string {
	return metav1.GroupVersion{Group: k.Group, Version: k.Version}.String()
}

// groupResource names where objects are stored, whatever their version.
func (k *Kind) groupResource() string { return strings.TrimSuffix(k.Resource+"."+k.Group, ".") }

// usual are the kinds of Start.
var usual = []Kind{
	{Version: "v1", Resource: "namespaces", Kind: "Namespace"},
	{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
	{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
	{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true},
	{Version: "v1", Resource: "services", Kind: "Service", Namespaced: true},
	{Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true},
	{Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota", Namespaced: true},
	{Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume"},
	{Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true},
	{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
	{Group: "apps", Version: "v1", Resource: "replicasets", Kind: "ReplicaSet", Namespaced: true},
	{Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Namespaced: true},
	{Group: "batch", Version: "v1", Resource: "cronjobs", Kind: "CronJob", Namespaced: true},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings", Kind: "RoleBinding", Namespaced: true},
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition"},
}

// Server is the API server, an http.Handler. Safe for concurrent use.
type Server struct {
	// Before, if set, is called with every list request before it is answered, one at a time.
	Before func(s *Server, r *http.Request)
	// Default, if set, adds what an object has by default to each object that is written.
	Default func(object map[string]any)
	// Exec, if set, answers requests to run commands in Pods (ExecHandler).
	Exec http.Handler
	// DeadGroups are announced and cannot be discovered.
	DeadGroups []string

	http   *httptest.Server // of Start
	before sync.Mutex       // held while Before runs
	asking sync.Mutex       // held while the fault of Fail runs

	mu      sync.Mutex
	kinds   kinds
	storage objectStorage
	seen    seenRequest
	fault   Fault
	words   map[int]string
	causes  map[int][]metav1.StatusCause
}

// seenRequest is what was asked of a server.
type seenRequest struct {
	requests []string // "POST /api/v1/namespaces"
	lists    int
	gone     int // answers with status 410
}

// New returns a server at revision 1000 with the given kinds.
func New(kinds ...Kind) *Server {
	return &Server{kinds: kinds, storage: objectStorage{stored: map[string]*collection{}, revision: firstRevision}}
}

// Start returns a server of the usual kinds that listens until the test has ended.
func Start(t testing.TB) *Server {
	s := New(usual...)
	s.http = httptest.NewServer(s)
	t.Cleanup(s.http.Close)
	return s
}

// Config connects to a server of Start.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.http.URL} }

// Serve adds a kind, "apps/v1" being a group and version.
func (s *Server) Serve(groupVersion, resource, kind string, namespaced bool) {
	group, version, ok := strings.Cut(groupVersion, "/")
	if !ok {
		group, version = "", groupVersion
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds.serveKind(Kind{Group: group, Version: version, Resource: resource, Kind: kind, Namespaced: namespaced, Custom: !builtIn(group)})
}

// Requests returns the requests so far that start with prefix, such as "POST ". Those of discovery
// are left out.
func (s *Server) Requests(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.seen.requests {
		if strings.HasPrefix(r, prefix) {
			out = append(out, r)
		}
	}
	return out
}

// CountExpired returns how many answers were 410 Gone.
func (s *Server) CountExpired() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.gone
}

// Lists returns how many list requests came.
func (s *Server) Lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.lists
}

// Compact drops every revision up to now and moves on to the next one.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storage.compacted = s.storage.nextRevision()
}

// Advance moves on to the next revision, as a write to another kind would.
func (s *Server) Advance() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storage.nextRevision()
}

// target is what a path speaks of.
type target struct{ group, version, namespace, resource, name string }

func (t target) storageKey() string { return strings.TrimPrefix(t.namespace+"/"+t.name, "/") }

func (t target) groupResource() string { return strings.TrimSuffix(t.resource+"."+t.group, ".") }

// parseTarget reads the path of a collection, an object, or the status of an object, which is the object
// as well; false for every other.
func parseTarget(path string) (t target, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		t.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		t.group, t.version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	return t, len(parts) < 3 || len(parts) == 3 && parts[2] == "status"
}

// objectPath is where an object is found.
func (t target) objectPath() string {
	prefix := "/apis/" + t.group + "/" + t.version
	if t.group == "" {
		prefix = "/api/" + t.version
	}
	if t.namespace != "" {
		prefix += "/namespaces/" + t.namespace
	}
	return fmt.Sprintf("%s/%s/%s", prefix, t.resource, t.name)
}
