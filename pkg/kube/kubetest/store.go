package kubetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// version is an object from a revision on; nil says that it was deleted then.
type version struct {
	revision int64
	object   map[string]any
}

// record is the history of what was stored under one name.
type record struct {
	target
	versions []version // in order of revisions
}

// at returns the object at a revision; nil when there was none.
func (r *record) at(revision int64) map[string]any {
	for _, v := range slices.Backward(r.versions) {
		if v.revision <= revision {
			return v.object
		}
	}
	return nil
}

// now returns the object as it is.
func (r *record) now() map[string]any {
	if r == nil {
		return nil
	}
	return r.versions[len(r.versions)-1].object
}

// collection is all objects of a kind, in order of their keys as etcd has it.
type collection struct{ records []*record }

func (c *collection) find(key string) (int, bool) {
	return slices.BinarySearchFunc(c.records, key, func(r *record, key string) int { return strings.Compare(r.key(), key) })
}

// record returns the history of an object; nil when it never was.
func (s *Server) record(t target) *record {
	c := s.stored[t.groupResource()]
	if c == nil {
		return nil
	}
	if i, found := c.find(t.key()); found {
		return c.records[i]
	}
	return nil
}

// store adds a version of an object.
func (s *Server) store(t target, revision int64, object map[string]any) {
	c := s.stored[t.groupResource()]
	if c == nil {
		c = &collection{}
		s.stored[t.groupResource()] = c
	}
	i, found := c.find(t.key())
	if !found {
		c.records = slices.Insert(c.records, i, &record{target: t})
	}
	c.records[i].versions = append(c.records[i].versions, version{revision, object})
}

// each calls fn for every object that is there.
func (s *Server) each(fn func(r *record, object map[string]any)) {
	for _, c := range s.stored {
		for _, r := range c.records {
			if object := r.now(); object != nil {
				fn(r, object)
			}
		}
	}
}

// identify gives an object that is new its identity, unless it has one.
func (s *Server) identify(object map[string]any, revision int64) {
	if meta := Meta(object); meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("new-%d", revision)
		meta["resourceVersion"] = fmt.Sprint(revision)
		meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	}
}

// change stores a new version of an object that is there, which replaces the one before.
func (s *Server) change(t target, object map[string]any) {
	revision := s.next()
	Meta(object)["resourceVersion"] = fmt.Sprint(revision)
	s.store(t, revision, object)
}

// remove deletes an object that is there.
func (s *Server) remove(t target) { s.store(t, s.next(), nil) }

// Object is one object for Add, whose metadata is completed when it is added.
type Object struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	Deleting            bool
	// Body holds further top-level fields.
	Body map[string]any
}

// Add stores objects of a resource ("pods", "widgets.example.com") that were there before the first
// revision that the server answers for: every list has them.
func (s *Server) Add(resource string, objects ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := Kind{Resource: resource}
	for i := range s.kinds {
		if s.kinds[i].groupResource() == resource {
			kind = s.kinds[i]
		}
	}
	for _, o := range objects {
		t := target{group: kind.Group, version: kind.Version, namespace: o.Namespace, resource: kind.Resource, name: o.Name}
		s.store(t, kind.Own, o.complete(&kind, t.key()))
	}
}

// complete returns the object as a server stores it.
func (o *Object) complete(k *Kind, key string) map[string]any {
	meta := map[string]any{"name": o.Name, "uid": "uid-" + strings.ToLower(k.Kind) + "-" + strings.ReplaceAll(key, "/", "-"), "resourceVersion": "7"}
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
	object := map[string]any{"apiVersion": k.groupVersion(), "kind": k.Kind, "metadata": meta}
	for key, value := range o.Body {
		object[key] = value
	}
	return plain(object)
}

// plain returns an object as JSON has it.
func plain(object map[string]any) map[string]any {
	var out map[string]any
	if err := json.Unmarshal([]byte(encode(object)), &out); err != nil {
		return map[string]any{"unreadable": err.Error()}
	}
	return out
}

// Put stores an object at a path as it is, with an identity if it has none.
func (s *Server) Put(path string, object map[string]any) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := parse(path)
	revision := s.next()
	s.identify(object, revision)
	s.store(t, revision, object)
	return object
}

// Delete removes the object at a path.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, _ := parse(path); s.record(t).now() != nil {
		s.remove(t)
	}
}

// Change changes the object at a path, as a controller would.
func (s *Server) Change(path string, change func(object map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := parse(path)
	if object := s.record(t).now(); object != nil {
		object = runtime.DeepCopyJSON(object)
		change(object)
		s.change(t, object)
	}
}

// Object returns the object at a path, nil when there is none.
func (s *Server) Object(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := parse(path)
	return s.record(t).now()
}

// UID returns the identity of the object at a path.
func (s *Server) UID(path string) string {
	object := s.Object(path)
	if object == nil {
		return ""
	}
	uid, _ := Meta(object)["uid"].(string)
	return uid
}

// Meta returns the metadata of an object.
func Meta(object map[string]any) map[string]any {
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		object["metadata"] = meta
	}
	return meta
}

// Content returns every object by its path, as text in which identities are replaced by the paths
// they stand for.
func (s *Server) Content() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	s.each(func(r *record, object map[string]any) {
		names = append(names, fmt.Sprintf("%q", Meta(object)["uid"]), fmt.Sprintf("%q", "UID of "+r.path()))
	})
	known := strings.NewReplacer(names...)
	out := map[string]string{}
	s.each(func(r *record, object map[string]any) {
		shown := plain(object)
		delete(Meta(shown), "resourceVersion")
		out[r.path()] = known.Replace(encode(shown))
	})
	return out
}
