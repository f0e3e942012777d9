// Package apifake is an API server for tests: discovery and paged raw lists over
// objects that do not change, with revisions, compaction and faults.
//
// It behaves as Kubernetes does where backups can tell: pages come in key order,
// exact revisions are answered as asked, tokens of compacted revisions get a 410
// with a token to go on behind the last key, revisions to come are too large,
// custom resources send their metadata after the items.
package apifake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Kind is a kind of objects the server serves.
type Kind struct {
	Group, Version, Kind, Resource string
	Namespaced                     bool
	// Custom kinds are defined by a CustomResourceDefinition: they send their list
	// metadata last and type meta with each item.
	Custom bool
	// Own, if not zero, is the revision of the storage that holds this kind alone. It
	// was empty before that revision, and forgets none.
	Own int64
	// Dead kinds are discovered and answer every list with 500.
	Dead bool
	// Narrow kinds may be listed in one namespace at a time only.
	Narrow bool
}

func (k *Kind) groupVersion() string {
	if k.Group == "" {
		return k.Version
	}
	return k.Group + "/" + k.Version
}

func (k *Kind) path() string {
	if k.Group == "" {
		return "/api/" + k.Version
	}
	return "/apis/" + k.groupVersion()
}

// Object is one object, whose metadata is completed when it is added.
type Object struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	Deleting            bool
	// Body holds further top-level fields.
	Body map[string]any
}

func (o *Object) key() string { return strings.TrimPrefix(o.Namespace+"/"+o.Name, "/") }

// Server is an http.Handler. Safe for concurrent use.
type Server struct {
	mu        sync.Mutex
	kinds     []Kind
	objects   map[string][]Object // by resource and group
	revision  int64
	compacted int64
	gone      int // answers with status 410
	lists     int
	// Before, if set, sees every list request under the lock and may change
	// the server with the methods ending in Locked.
	Before func(s *Server, r *http.Request)
	// DeadGroups are announced and cannot be discovered.
	DeadGroups []string
}

// New returns a server at revision 1000 with the given kinds.
func New(kinds ...Kind) *Server {
	return &Server{kinds: kinds, objects: map[string][]Object{}, revision: 1000}
}

// Add stores objects of a resource ("pods", "widgets.example.com").
func (s *Server) Add(resource string, objects ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Concat(s.objects[resource], objects)
	slices.SortFunc(all, func(a, b Object) int { return strings.Compare(a.key(), b.key()) })
	s.objects[resource] = all
}

// Compact forgets every revision up to now and moves on to the next one.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.CompactLocked()
}

// CompactLocked is Compact for use in Before.
func (s *Server) CompactLocked() {
	s.revision++
	s.compacted = s.revision
}

// AdvanceLocked moves on to the next revision, for use in Before.
func (s *Server) AdvanceLocked() { s.revision++ }

// Gone returns how many answers were 410 Gone.
func (s *Server) Gone() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// Lists returns how many list requests came.
func (s *Server) Lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch path {
	case "/api":
		reply(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case "/apis":
		reply(w, http.StatusOK, s.groups())
		return
	case "/apis/apiregistration.k8s.io/v1/apiservices":
		reply(w, http.StatusOK, s.apiServices())
		return
	}
	for i := range s.kinds {
		if path == s.kinds[i].path() {
			reply(w, http.StatusOK, s.resources(s.kinds[i].groupVersion()))
			return
		}
	}
	for i := range s.kinds {
		k := &s.kinds[i]
		rest, ok := strings.CutPrefix(path, k.path()+"/")
		if !ok {
			continue
		}
		if ns, ok := strings.CutPrefix(rest, "namespaces/"); ok && strings.HasSuffix(ns, "/"+k.Resource) {
			s.list(w, r, k, strings.TrimSuffix(ns, "/"+k.Resource))
			return
		}
		if rest == k.Resource {
			s.list(w, r, k, "")
			return
		}
	}
	reply(w, http.StatusServiceUnavailable, status(http.StatusServiceUnavailable, "nothing answers "+path))
}

func (s *Server) groups() metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	add := func(group, version string) {
		if group == "" || slices.ContainsFunc(out.Groups, func(g metav1.APIGroup) bool { return g.Name == group }) {
			return
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: group + "/" + version, Version: version}
		out.Groups = append(out.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	for _, k := range s.kinds {
		add(k.Group, k.Version)
	}
	for _, g := range s.DeadGroups {
		add(g, "v1")
	}
	return out
}

// apiServices marks the group versions of custom resources as a server does.
func (s *Server) apiServices() map[string]any {
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

func (s *Server) resources(gv string) metav1.APIResourceList {
	out := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}
	for _, k := range s.kinds {
		if k.groupVersion() == gv {
			out.APIResources = append(out.APIResources, metav1.APIResource{Name: k.Resource, Kind: k.Kind, Namespaced: k.Namespaced,
				SingularName: strings.ToLower(k.Kind), Verbs: metav1.Verbs{"create", "delete", "get", "list", "watch"}})
		}
	}
	return out
}

type token struct {
	Revision int64
	After    string
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, k *Kind, namespace string) {
	s.lists++
	if s.Before != nil {
		s.Before(s, r)
	}
	if k.Dead {
		reply(w, http.StatusInternalServerError, status(http.StatusInternalServerError, "conversion webhook failed"))
		return
	}
	if k.Narrow && namespace == "" {
		reply(w, http.StatusForbidden, status(http.StatusForbidden, "not at the cluster scope"))
		return
	}
	now := s.revision
	if k.Own != 0 {
		now = k.Own
	}
	at := token{Revision: now}
	q := r.URL.Query()
	if c := q.Get("continue"); c != "" {
		if err := json.Unmarshal([]byte(c), &at); err != nil {
			reply(w, http.StatusBadRequest, status(http.StatusBadRequest, "continue: "+err.Error()))
			return
		}
		if at.Revision < 0 {
			at.Revision = now
		}
	} else if rv := q.Get("resourceVersion"); rv != "" {
		at.Revision, _ = strconv.ParseInt(rv, 10, 64)
	}
	switch {
	case at.Revision > now:
		reply(w, http.StatusGatewayTimeout, tooLarge())
		return
	case k.Own == 0 && at.Revision < s.compacted:
		s.expired(w, at)
		return
	}
	s.page(w, r, k, namespace, at)
}

func (s *Server) expired(w http.ResponseWriter, at token) {
	s.gone++
	st := status(http.StatusGone, "the revision was compacted")
	st.Reason = metav1.StatusReasonExpired
	if at.After != "" {
		st.Continue = encode(token{Revision: -1, After: at.After})
	}
	reply(w, http.StatusGone, st)
}

func (s *Server) page(w http.ResponseWriter, r *http.Request, k *Kind, namespace string, at token) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		reply(w, http.StatusBadRequest, status(http.StatusBadRequest, "labelSelector: "+err.Error()))
		return
	}
	name, byName := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	var items []string
	next, last := "", ""
	for _, o := range s.objects[strings.TrimSuffix(k.Resource+"."+k.Group, ".")] {
		if (namespace != "" && o.Namespace != namespace) || (at.After != "" && o.key() <= at.After) ||
			at.Revision < k.Own || !selector.Matches(labels.Set(o.Labels)) || (byName && o.Name != name) {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = encode(token{Revision: at.Revision, After: last})
			break
		}
		items, last = append(items, k.render(&o)), o.key()
	}
	meta := fmt.Sprintf(`"metadata":{"resourceVersion":"%d","continue":%q}`, at.Revision, next)
	list := `"items":[` + strings.Join(items, ",") + `]`
	if k.Custom {
		meta, list = list, meta
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,%s,%s}`, k.Kind+"List", k.groupVersion(), meta, list)
}

// render writes an object as the server stores it.
func (k *Kind) render(o *Object) string {
	meta := map[string]any{"name": o.Name, "uid": "uid-" + strings.ToLower(k.Kind) + "-" + strings.ReplaceAll(o.key(), "/", "-"), "resourceVersion": "7"}
	if o.Namespace != "" {
		meta["namespace"] = o.Namespace
	}
	if o.Labels != nil {
		meta["labels"] = o.Labels
	}
	if o.Annotations != nil {
		meta["annotations"] = o.Annotations
	}
	if o.Deleting {
		meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	body := map[string]any{"metadata": meta}
	for key, value := range o.Body {
		body[key] = value
	}
	if k.Custom {
		body["apiVersion"], body["kind"] = k.groupVersion(), k.Kind
	}
	return encode(body)
}

func status(code int32, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: code, Message: message}
}

// tooLarge is the answer to a revision that the storage has not come to.
func tooLarge() metav1.Status {
	st := status(http.StatusGatewayTimeout, "Too large resource version")
	st.Reason = metav1.StatusReasonTimeout
	st.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}, RetryAfterSeconds: 1}
	return st
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error() // not JSON, so that a test that gets here fails
	}
	return string(data)
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone is its own affair
}
