// Package apitest is a small API server with behaviour, for tests: it stores objects, assigns identities, knows
// namespaces, definitions and discovery, applies patches, and fails on request.
package apitest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Fault decides about a request before it is carried out. A status other than 0 is answered instead; after runs once it
// was carried out and may still drop the connection by returning true.
type Fault func(r *http.Request, body map[string]any) (status int, dropAnswer bool)

// Server is the API server. Safe for concurrent use.
type Server struct {
	http *httptest.Server

	mu      sync.Mutex
	kinds   map[string]metav1.APIResource // "apps/v1/deployments"
	objects map[string]map[string]any     // by path
	log     []string                      // "POST /api/v1/namespaces"
	next    int
	fault   Fault
	words   map[int]string
}

// Start returns a server of the usual kinds that is stopped with the test.
func Start(t testing.TB) *Server {
	s := &Server{kinds: map[string]metav1.APIResource{}, objects: map[string]map[string]any{}}
	for _, kind := range []struct {
		gv, name, kind string
		namespaced     bool
	}{
		{"v1", "namespaces", "Namespace", false}, {"v1", "pods", "Pod", true}, {"v1", "configmaps", "ConfigMap", true},
		{"v1", "secrets", "Secret", true}, {"v1", "services", "Service", true}, {"v1", "serviceaccounts", "ServiceAccount", true},
		{"v1", "persistentvolumes", "PersistentVolume", false}, {"v1", "persistentvolumeclaims", "PersistentVolumeClaim", true},
		{"apps/v1", "deployments", "Deployment", true}, {"apps/v1", "replicasets", "ReplicaSet", true},
		{"batch/v1", "jobs", "Job", true}, {"batch/v1", "cronjobs", "CronJob", true},
		{"rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", true},
		{"apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false},
	} {
		s.Serve(kind.gv, kind.name, kind.kind, kind.namespaced)
	}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, s.own()) }))
	t.Cleanup(s.http.Close)
	return s
}

// Config connects to the server.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.http.URL} }

// own is the fault that Fail installed.
func (s *Server) own() Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// Door returns another way to the same server with a fault of its own, or with f nil the server's. Once closed, nothing that was sent through it takes
// effect any more, as a request of a client that is gone might.
func (s *Server) Door(f Fault) (config *rest.Config, closeIt func()) {
	door := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := f
		if fault == nil {
			fault = s.own()
		}
		s.serve(w, r, fault)
	}))
	return &rest.Config{Host: door.URL}, door.Close
}

// Serve adds a kind.
func (s *Server) Serve(groupVersion, name, kind string, namespaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[groupVersion+"/"+name] = metav1.APIResource{
		Name: name, SingularName: strings.ToLower(kind), Kind: kind, Namespaced: namespaced,
		Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch"},
	}
}

// Fail installs a fault.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Say sets the message of the failures with a status.
func (s *Server) Say(status int, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.words == nil {
		s.words = map[int]string{}
	}
	s.words[status] = message
}

func (s *Server) said(status int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.words[status], "asked to fail")
}

// Put stores an object at a path as it is, with an identity if it has none.
func (s *Server) Put(path string, obj map[string]any) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identify(obj)
	s.objects[path] = obj
	return obj
}

// Delete removes the object at a path.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, path)
}

// Object returns the object at a path, nil when there is none.
func (s *Server) Object(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

// UID returns the identity of the object at a path.
func (s *Server) UID(path string) string {
	obj := s.Object(path)
	if obj == nil {
		return ""
	}
	uid, _ := Meta(obj)["uid"].(string)
	return uid
}

// Requests returns the requests so far that start with prefix, such as "POST ".
func (s *Server) Requests(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.log {
		if strings.HasPrefix(r, prefix) {
			out = append(out, r)
		}
	}
	return out
}

// Meta returns the metadata of an object.
func Meta(obj map[string]any) map[string]any {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		obj["metadata"] = meta
	}
	return meta
}

func (s *Server) identify(obj map[string]any) {
	if meta := Meta(obj); meta["uid"] == nil {
		s.next++
		meta["uid"] = fmt.Sprintf("new-%d", s.next)
		meta["resourceVersion"] = fmt.Sprint(s.next)
		meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, fault Fault) {
	if s.discovery(w, r) {
		return
	}
	var body map[string]any
	raw, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Type") == string(types.JSONPatchType) { // a list
		body = map[string]any{"patch": json.RawMessage(raw)}
	} else if err == nil && len(raw) > 0 {
		if err := json.Unmarshal(raw, &body); err != nil {
			fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	drop := false
	if fault != nil {
		var status int
		if status, drop = fault(r, body); status != 0 {
			s.note(r)
			fail(w, status, map[int]metav1.StatusReason{429: metav1.StatusReasonTooManyRequests, 503: metav1.StatusReasonServiceUnavailable,
				403: metav1.StatusReasonForbidden, 422: metav1.StatusReasonInvalid, 500: metav1.StatusReasonInternalError}[status], s.said(status))
			return
		}
	}
	out := w
	if drop {
		out = httptest.NewRecorder()
	}
	s.handle(out, r, body)
	if drop {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	}
}

func (s *Server) note(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, r.Method+" "+r.URL.Path)
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request, body map[string]any) {
	s.note(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		manage(body, r)
		s.create(w, r.URL.Path, body)
	case http.MethodGet:
		if obj, ok := s.objects[r.URL.Path]; ok {
			reply(w, http.StatusOK, obj)
			return
		}
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" not found")
	case http.MethodPatch:
		s.patch(w, r, body)
	default:
		fail(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

func (s *Server) create(w http.ResponseWriter, path string, body map[string]any) {
	name, _ := Meta(body)["name"].(string)
	key, namespace := split(path)
	kind, served := s.kinds[key]
	switch {
	case !served:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case kind.Namespaced && s.objects["/api/v1/namespaces/"+namespace] == nil:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("namespaces %q not found", namespace))
	case s.objects[path+"/"+name] != nil:
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, name+" already exists")
	case Meta(body)["uid"] != nil:
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.uid must not be set")
	default:
		s.identify(body)
		s.objects[path+"/"+name] = body
		s.define(body)
		reply(w, http.StatusCreated, body)
	}
}

// define serves the kinds of a definition at once.
func (s *Server) define(body map[string]any) {
	if body["kind"] != "CustomResourceDefinition" {
		return
	}
	var crd struct {
		Spec struct {
			Group, Scope string
			Names        struct{ Plural, Kind string }
			Versions     []struct{ Name string }
		}
	}
	raw, _ := json.Marshal(body)
	_ = json.Unmarshal(raw, &crd)
	for _, v := range crd.Spec.Versions {
		s.kinds[crd.Spec.Group+"/"+v.Name+"/"+crd.Spec.Names.Plural] = metav1.APIResource{
			Name: crd.Spec.Names.Plural, Kind: crd.Spec.Names.Kind, Namespaced: crd.Spec.Scope == "Namespaced",
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch"},
		}
	}
	condition := func(name string) any { return map[string]any{"type": name, "status": "True"} }
	body["status"] = map[string]any{"conditions": []any{condition("Established"), condition("NamesAccepted")}}
}

// manage notes the field manager of a request in an object.
func manage(obj map[string]any, r *http.Request) {
	manager, meta := r.URL.Query().Get("fieldManager"), Meta(obj)
	if fields := managers(obj); manager != "" && !slices.Contains(fields, manager) {
		entry := map[string]any{"manager": manager, "operation": "Update"}
		known, _ := meta["managedFields"].([]any)
		meta["managedFields"] = append(slices.Clone(known), entry)
	}
}

func managers(obj map[string]any) (out []string) {
	fields, _ := Meta(obj)["managedFields"].([]any)
	for _, f := range fields {
		if entry, ok := f.(map[string]any); ok {
			out = append(out, fmt.Sprint(entry["manager"]))
		}
	}
	return out
}

// Managers returns the field managers of the object at a path.
func (s *Server) Managers(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return managers(s.objects[path])
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, body map[string]any) {
	path := r.URL.Path
	obj, ok := s.objects[path]
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, path+" not found")
		return
	}
	if uid := Meta(body)["uid"]; uid != nil && uid != Meta(obj)["uid"] {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, "the UID differs")
		return
	}
	from, _ := json.Marshal(obj)
	patched, err := apply(from, body)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	var out map[string]any
	_ = json.Unmarshal(patched, &out)
	if Meta(body)["managedFields"] == nil {
		manage(out, r)
	}
	s.touch(out)
	s.objects[path] = out
	reply(w, http.StatusOK, out)
}

// apply returns an object after a merge patch, or a JSON patch as serve wraps it.
func apply(object []byte, patch map[string]any) ([]byte, error) {
	if list, ok := patch["patch"].(json.RawMessage); ok {
		operations, err := jsonpatch.DecodePatch(list)
		if err != nil {
			return nil, err
		}
		return operations.Apply(object)
	}
	merge, _ := json.Marshal(patch)
	return jsonpatch.MergePatch(object, merge)
}

// touch gives an object a new version.
func (s *Server) touch(obj map[string]any) {
	s.next++
	Meta(obj)["resourceVersion"] = fmt.Sprint(s.next)
}

// Change changes the object at a path, as a controller would.
func (s *Server) Change(path string, change func(obj map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj := s.objects[path]; obj != nil {
		obj = runtime.DeepCopyJSON(obj)
		change(obj)
		s.touch(obj)
		s.objects[path] = obj
	}
}

// split returns the kind's key and the namespace of a collection's path.
func split(path string) (key, namespace string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 3 {
		return "", ""
	}
	gv, rest := parts[1], parts[2:]
	if parts[0] == "apis" {
		gv, rest = parts[1]+"/"+parts[2], parts[3:]
	}
	if len(rest) == 3 && rest[0] == "namespaces" {
		return gv + "/" + rest[2], rest[1]
	}
	return gv + "/" + strings.Join(rest, "/"), ""
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	reply(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	})
}

// Content returns every object by its path, as text in which identities are replaced by the paths they stand for.
func (s *Server) Content() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for path, obj := range s.objects {
		names = append(names, fmt.Sprintf("%q", Meta(obj)["uid"]), fmt.Sprintf("%q", "UID of "+path))
	}
	known := strings.NewReplacer(names...)
	out := map[string]string{}
	for path, obj := range s.objects {
		shown := map[string]any{}
		raw, _ := json.Marshal(obj)
		_ = json.Unmarshal(raw, &shown)
		delete(Meta(shown), "resourceVersion")
		raw, _ = json.Marshal(shown)
		out[path] = known.Replace(string(raw))
	}
	return out
}
