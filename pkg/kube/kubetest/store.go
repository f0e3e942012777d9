package kubetest

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

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
		s.storage.addVersion(t, kind.Own, o.completeObject(&kind, t.storageKey()))
	}
}

// completeObject returns the object as a server stores it.
func (o *Object) completeObject(k *Kind, key string) map[string]any {
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
	return plainObject(object)
}

// plainObject returns an object as JSON has it.
func plainObject(object map[string]any) map[string]any {
	var out map[string]any
	if err := json.Unmarshal([]byte(encodeToken(object)), &out); err != nil {
		return map[string]any{"unreadable": err.Error()}
	}
	return out
}

// Put stores an object at a path as it is, with an identity if it has none.
func (s *Server) Put(path string, object map[string]any) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := parseTarget(path)
	revision := s.storage.nextRevision()
	setIdentity(object, revision)
	s.storage.addVersion(t, revision, object)
	return object
}

// Delete removes the object at a path.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, _ := parseTarget(path); s.storage.recordOf(t).currentObject() != nil {
		s.storage.removeObject(t)
	}
}

// Change changes the object at a path, as a controller would.
func (s *Server) Change(path string, change func(object map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := parseTarget(path)
	if object := s.storage.recordOf(t).currentObject(); object != nil {
		object = runtime.DeepCopyJSON(object)
		change(object)
		s.storage.changeObject(t, object)
	}
}

// Object returns the object at a path, nil when there is none.
func (s *Server) Object(path string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := parseTarget(path)
	return s.storage.recordOf(t).currentObject()
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
	s.storage.eachObject(func(r *objectHistory, object map[string]any) {
		names = append(names, fmt.Sprintf("%q", Meta(object)["uid"]), fmt.Sprintf("%q", "UID of "+r.objectPath()))
	})
	known := strings.NewReplacer(names...)
	out := map[string]string{}
	s.storage.eachObject(func(r *objectHistory, object map[string]any) {
		shown := plainObject(object)
		delete(Meta(shown), "resourceVersion")
		out[r.objectPath()] = known.Replace(encodeToken(shown))
	})
	return out
}

// Managers returns the field managers of the object at a path.
func (s *Server) Managers(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, _ := parseTarget(path)
	object := s.storage.recordOf(t).currentObject()
	if object == nil {
		return nil
	}
	return fieldManagers(object)
}
