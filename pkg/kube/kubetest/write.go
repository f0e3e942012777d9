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

// apiCall is a request for a kind that is served. The Server's lock is held while it is answered.
type apiCall struct {
	target
	w       http.ResponseWriter
	r       *http.Request
	storage *objectStorage
	kinds   *kinds
	kind    *Kind
	body    map[string]any
	// defaults is Server.Default.
	defaults func(object map[string]any)
}

// answerSingle answers a request about an object that is there.
func (c *apiCall) answerSingle() {
	switch c.r.Method {
	case http.MethodGet:
		writeReply(c.w, http.StatusOK, c.currentObject())
	case http.MethodPut:
		c.updateObject()
	case http.MethodPatch:
		c.patchObject()
	case http.MethodDelete:
		c.deleteObject()
	default:
		writeFailure(c.w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, c.r.Method)
	}
}

// currentObject is the object as it is.
func (c *apiCall) currentObject() map[string]any { return c.storage.recordOf(c.target).currentObject() }

func (c *apiCall) createObject() {
	w, k, t, body := c.w, c.kind, c.target, c.body
	meta := Meta(body)
	t.name = stringOf(meta["name"])
	namespace := target{version: "v1", resource: "namespaces", name: t.namespace}
	switch {
	case k.Namespaced && c.storage.recordOf(namespace).currentObject() == nil:
		writeFailure(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("namespaces %q not found", t.namespace))
	case c.storage.recordOf(t).currentObject() != nil:
		writeFailure(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, t.name+" already exists")
	case stringOf(meta["resourceVersion"]) != "":
		writeFailure(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "resourceVersion should not be set on objects to be created")
	case meta["uid"] != nil:
		writeFailure(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.uid must not be set")
	default:
		c.setDefaults(body)
		revision := c.storage.nextRevision()
		delete(meta, "resourceVersion")
		setIdentity(body, revision)
		if k.Namespaced {
			meta["namespace"] = t.namespace
		}
		if k.Kind == "CustomResourceDefinition" {
			c.kinds.serveDefinition(body)
		}
		c.storage.addVersion(t, revision, body)
		writeReply(w, http.StatusCreated, body)
	}
}

func (c *apiCall) setDefaults(object map[string]any) {
	if c.defaults != nil {
		c.defaults(object)
	}
}

// updateObject replaces an object; one that names no revision replaces any.
func (c *apiCall) updateObject() {
	object, body := c.currentObject(), c.body
	if conflict := identityDifference(object, Meta(body)); conflict != "" {
		writeFailure(c.w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	for _, field := range []string{"uid", "creationTimestamp", "deletionTimestamp"} {
		if value, set := Meta(object)[field]; set {
			Meta(body)[field] = value
		}
	}
	c.replaceObject(body, true)
}

func (c *apiCall) patchObject() {
	object, body := c.currentObject(), c.body
	if uid := stringOf(Meta(body)["uid"]); uid != "" && uid != stringOf(Meta(object)["uid"]) {
		writeFailure(c.w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "metadata.uid: field is immutable")
		return
	}
	if conflict := identityDifference(object, Meta(body)); conflict != "" {
		writeFailure(c.w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	patched, err := applyPatch([]byte(encodeToken(object)), body)
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(patched, &out)
	}
	if err != nil {
		writeFailure(c.w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	c.replaceObject(out, Meta(body)["managedFields"] == nil) // else the patch is about who manages what
}

// replaceObject stores what became of an object. What did not change keeps its revision, and what was
// only waiting for its last finalizer goes. The field manager of the request, if any, is noted if
// managed is true. A dry run stores nothing.
func (c *apiCall) replaceObject(object map[string]any, managed bool) {
	before := c.currentObject()
	c.setDefaults(object)
	if c.r.URL.Query().Get("dryRun") == metav1.DryRunAll {
		writeReply(c.w, http.StatusOK, object)
		return
	}
	Meta(object)["resourceVersion"] = Meta(before)["resourceVersion"]
	if !reflect.DeepEqual(before, object) {
		if managed {
			noteFieldManager(object, c.r)
		}
		if Meta(object)["deletionTimestamp"] != nil && len(finalizersOf(object)) == 0 {
			c.storage.removeObject(c.target)
		} else {
			c.storage.changeObject(c.target, object)
		}
	}
	writeReply(c.w, http.StatusOK, object)
}

// deleteObject deletes an object, or marks it where it has finalizers.
func (c *apiCall) deleteObject() {
	object := c.currentObject()
	preconditions, _ := c.body["preconditions"].(map[string]any)
	if conflict := identityDifference(object, preconditions); conflict != "" {
		writeFailure(c.w, http.StatusConflict, metav1.StatusReasonConflict, conflict)
		return
	}
	if len(finalizersOf(object)) > 0 {
		if Meta(object)["deletionTimestamp"] == nil {
			object = runtime.DeepCopyJSON(object)
			Meta(object)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
			c.storage.changeObject(c.target, object)
		}
		writeReply(c.w, http.StatusOK, object)
		return
	}
	c.storage.removeObject(c.target)
	writeReply(c.w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

func finalizersOf(object map[string]any) []any {
	list, _ := Meta(object)["finalizers"].([]any)
	return list
}

// identityDifference returns how an object is not the one that a UID and a resourceVersion name; empty where
// it is.
func identityDifference(object, wanted map[string]any) string {
	for _, field := range []string{"uid", "resourceVersion"} {
		if want := stringOf(wanted[field]); want != "" && want != stringOf(Meta(object)[field]) {
			return fmt.Sprintf("the %s differs", field)
		}
	}
	return ""
}

// applyPatch returns an object after a merge patch, or a JSON patch as read wraps it.
func applyPatch(object []byte, patch map[string]any) ([]byte, error) {
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

// noteFieldManager notes the field manager of a request in an object.
func noteFieldManager(object map[string]any, r *http.Request) {
	manager, meta := r.URL.Query().Get("fieldManager"), Meta(object)
	if fields := fieldManagers(object); manager != "" && !slices.Contains(fields, manager) {
		entry := map[string]any{"manager": manager, "operation": "Update"}
		known, _ := meta["managedFields"].([]any)
		meta["managedFields"] = append(slices.Clone(known), entry)
	}
}

func fieldManagers(object map[string]any) (out []string) {
	fields, _ := Meta(object)["managedFields"].([]any)
	for _, f := range fields {
		if entry, ok := f.(map[string]any); ok {
			out = append(out, fmt.Sprint(entry["manager"]))
		}
	}
	return out
}
