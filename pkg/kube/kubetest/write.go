package kubetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func (s *Server) create(w http.ResponseWriter, k *Kind, t target, body map[string]any) {
	meta := Meta(body)
	t.name = text(meta["name"])
	namespace := target{version: "v1", resource: "namespaces", name: t.namespace}
	switch {
	case k.Namespaced && s.record(namespace).now() == nil:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("namespaces %q not found", t.namespace))
	case s.record(t).now() != nil:
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, t.name+" already exists")
	case text(meta["resourceVersion"]) != "":
		fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "resourceVersion should not be set on objects to be created")
	case meta["uid"] != nil:
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.uid must not be set")
	default:
		revision := s.next()
		delete(meta, "resourceVersion")
		s.identify(body, revision)
		if k.Namespaced {
			meta["namespace"] = t.namespace
		}
		if k.Kind == "CustomResourceDefinition" {
			s.define(body)
		}
		s.store(t, revision, body)
		reply(w, http.StatusCreated, body)
	}
}

// update replaces an object; one that names no revision replaces any.
func (s *Server) update(w http.ResponseWriter, r *http.Request, t target, body map[string]any) {
	object := s.record(t).now()
	if conflict := differs(object, Meta(body)); conflict != "" {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	for _, field := range []string{"uid", "creationTimestamp", "deletionTimestamp"} {
		if value, set := Meta(object)[field]; set {
			Meta(body)[field] = value
		}
	}
	s.replace(w, r, t, body)
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target, body map[string]any) {
	object := s.record(t).now()
	if uid := text(Meta(body)["uid"]); uid != "" && uid != text(Meta(object)["uid"]) {
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.uid: field is immutable")
		return
	}
	if conflict := differs(object, Meta(body)); conflict != "" {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	patched, err := apply([]byte(encode(object)), body)
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(patched, &out)
	}
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	if Meta(body)["managedFields"] != nil {
		r = nil // the patch is about who manages what
	}
	s.replace(w, r, t, out)
}

// replace stores what became of an object. What did not change keeps its revision, and what was
// only waiting for its last finalizer goes. The field manager of r, if any, is noted.
func (s *Server) replace(w http.ResponseWriter, r *http.Request, t target, object map[string]any) {
	before := s.record(t).now()
	Meta(object)["resourceVersion"] = Meta(before)["resourceVersion"]
	if !reflect.DeepEqual(before, object) {
		if r != nil {
			manage(object, r)
		}
		if Meta(object)["deletionTimestamp"] != nil && len(finalizers(object)) == 0 {
			s.remove(t)
		} else {
			s.change(t, object)
		}
	}
	reply(w, http.StatusOK, object)
}

// delete deletes an object, or marks it where it has finalizers.
func (s *Server) delete(w http.ResponseWriter, t target, options map[string]any) {
	object := s.record(t).now()
	preconditions, _ := options["preconditions"].(map[string]any)
	if conflict := differs(object, preconditions); conflict != "" {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	if len(finalizers(object)) > 0 {
		if Meta(object)["deletionTimestamp"] == nil {
			object = runtime.DeepCopyJSON(object)
			Meta(object)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
			s.change(t, object)
		}
		reply(w, http.StatusOK, object)
		return
	}
	s.remove(t)
	reply(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

func finalizers(object map[string]any) []any {
	list, _ := Meta(object)["finalizers"].([]any)
	return list
}

// differs says how an object is not the one that a UID and a resourceVersion name; empty where it
// is.
func differs(object, wanted map[string]any) string {
	for _, field := range []string{"uid", "resourceVersion"} {
		if want := text(wanted[field]); want != "" && want != text(Meta(object)[field]) {
			return fmt.Sprintf("the %s differs", field)
		}
	}
	return ""
}

// apply returns an object after a merge patch, or a JSON patch as read wraps it.
func apply(object []byte, patch map[string]any) ([]byte, error) {
	if list, ok := patch["patch"].(json.RawMessage); ok {
		operations, err := jsonpatch.DecodePatch(list)
		if err != nil {
			return nil, err
		}
		return operations.Apply(object)
	}
	merge, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return jsonpatch.MergePatch(object, merge)
}

// manage notes the field manager of a request in an object.
func manage(object map[string]any, r *http.Request) {
	manager, meta := r.URL.Query().Get("fieldManager"), Meta(object)
	if fields := managers(object); manager != "" && !slices.Contains(fields, manager) {
		entry := map[string]any{"manager": manager, "operation": "Update"}
		known, _ := meta["managedFields"].([]any)
		meta["managedFields"] = append(slices.Clone(known), entry)
	}
}

func managers(object map[string]any) (out []string) {
	fields, _ := Meta(object)["managedFields"].([]any)
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
	t, _ := parse(path)
	object := s.record(t).now()
	if object == nil {
		return nil
	}
	return managers(object)
}
