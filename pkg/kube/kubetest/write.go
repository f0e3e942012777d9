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

// call is a request for a kind that is served. The Server's lock is held while it is answered.
type call struct {
	target
	w       http.ResponseWriter
	r       *http.Request
	storage *storage
	kinds   *kinds
	kind    *Kind
	body    map[string]any
}

// single answers a request about an object that is there.
func (c *call) single() {
	switch c.r.Method {
	case http.MethodGet:
		reply(c.w, http.StatusOK, c.object())
	case http.MethodPut:
		c.update()
	case http.MethodPatch:
		c.patch()
	case http.MethodDelete:
		c.delete()
	default:
		fail(c.w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, c.r.Method)
	}
}

// object is the object as it is.
func (c *call) object() map[string]any { return c.storage.record(c.target).now() }

func (c *call) create() {
	w, k, t, body := c.w, c.kind, c.target, c.body
	meta := Meta(body)
	t.name = text(meta["name"])
	namespace := target{version: "v1", resource: "namespaces", name: t.namespace}
	switch {
	case k.Namespaced && c.storage.record(namespace).now() == nil:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("namespaces %q not found", t.namespace))
	case c.storage.record(t).now() != nil:
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, t.name+" already exists")
	case text(meta["resourceVersion"]) != "":
		fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "resourceVersion should not be set on objects to be created")
	case meta["uid"] != nil:
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.uid must not be set")
	default:
		revision := c.storage.next()
		delete(meta, "resourceVersion")
		identify(body, revision)
		if k.Namespaced {
			meta["namespace"] = t.namespace
		}
		if k.Kind == "CustomResourceDefinition" {
			c.kinds.define(body)
		}
		c.storage.add(t, revision, body)
		reply(w, http.StatusCreated, body)
	}
}

// update replaces an object; one that names no revision replaces any.
func (c *call) update() {
	object, body := c.object(), c.body
	if conflict := differs(object, Meta(body)); conflict != "" {
		fail(c.w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	for _, field := range []string{"uid", "creationTimestamp", "deletionTimestamp"} {
		if value, set := Meta(object)[field]; set {
			Meta(body)[field] = value
		}
	}
	c.replace(body, true)
}

func (c *call) patch() {
	object, body := c.object(), c.body
	if uid := text(Meta(body)["uid"]); uid != "" && uid != text(Meta(object)["uid"]) {
		fail(c.w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.uid: field is immutable")
		return
	}
	if conflict := differs(object, Meta(body)); conflict != "" {
		fail(c.w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	patched, err := apply([]byte(encode(object)), body)
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(patched, &out)
	}
	if err != nil {
		fail(c.w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	c.replace(out, Meta(body)["managedFields"] == nil) // else the patch is about who manages what
}

// replace stores what became of an object. What did not change keeps its revision, and what was
// only waiting for its last finalizer goes. The field manager of the request, if any, is noted if
// managed is true.
func (c *call) replace(object map[string]any, managed bool) {
	before := c.object()
	Meta(object)["resourceVersion"] = Meta(before)["resourceVersion"]
	if !reflect.DeepEqual(before, object) {
		if managed {
			manage(object, c.r)
		}
		if Meta(object)["deletionTimestamp"] != nil && len(finalizers(object)) == 0 {
			c.storage.remove(c.target)
		} else {
			c.storage.change(c.target, object)
		}
	}
	reply(c.w, http.StatusOK, object)
}

// delete deletes an object, or marks it where it has finalizers.
func (c *call) delete() {
	object := c.object()
	preconditions, _ := c.body["preconditions"].(map[string]any)
	if conflict := differs(object, preconditions); conflict != "" {
		fail(c.w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	if len(finalizers(object)) > 0 {
		if Meta(object)["deletionTimestamp"] == nil {
			object = runtime.DeepCopyJSON(object)
			Meta(object)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
			c.storage.change(c.target, object)
		}
		reply(c.w, http.StatusOK, object)
		return
	}
	c.storage.remove(c.target)
	reply(c.w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

func finalizers(object map[string]any) []any {
	list, _ := Meta(object)["finalizers"].([]any)
	return list
}

// differs returns how an object is not the one that a UID and a resourceVersion name; empty where
// it is.
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
