package compare

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// tokenVolume matches the name of the volume that the API server adds to every Pod for its service
// account token.
var tokenVolume = regexp.MustCompile(`^kube-api-access-[a-z0-9]{5}$`)

// excludedReason returns why an object is left out, or "" when it is compared. These are made by
// controllers, under a new name each time.
func excludedReason(object *unstructured.Unstructured) string {
	gvk := object.GroupVersionKind()
	switch {
	case gvk.Kind == "Event" && (gvk.Group == "" || gvk.Group == "events.k8s.io"):
		return "Event"
	case gvk.Kind == "EndpointSlice" && object.GetLabels()["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io":
		return "EndpointSlice"
	}
	return ""
}

// normalizeObject brings an object into the form that is compared. Live holds the UIDs of all objects
// that were read, by their keys.
func normalizeObject(object map[string]any, rules []Rule, live map[Key]types.UID) {
	u := unstructured.Unstructured{Object: object}
	owners := ownersOf(&u, live)
	kind := u.GetKind()
	for _, r := range rules {
		if r.Kind == "*" || r.Kind == kind {
			r.applyRule(object)
		}
	}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return
	}
	delete(metadata, "ownerReferences")
	if len(owners) > 0 {
		metadata["ownerReferences"] = owners
	}
	for _, name := range []string{"labels", "annotations"} {
		if values, ok := metadata[name].(map[string]any); ok && len(values) == 0 {
			delete(metadata, name) // absent and empty mean the same
		}
	}
	if kind == "Pod" {
		renameTokenVolumes(object["spec"])
	}
}

// ownersOf replaces the UID of each owner reference by whether it is that of the live object.
func ownersOf(u *unstructured.Unstructured, live map[Key]types.UID) []any {
	references := u.GetOwnerReferences()
	owners := make([]any, 0, len(references))
	for _, reference := range references {
		group, _, found := strings.Cut(reference.APIVersion, "/")
		if !found {
			group = ""
		}
		state := "not among the objects read"
		for _, namespace := range []string{u.GetNamespace(), ""} {
			uid, known := live[Key{Group: group, Kind: reference.Kind, Namespace: namespace, Name: reference.Name}]
			switch {
			case known && uid == reference.UID:
				state = "live"
			case known && state != "live":
				state = "stale"
			}
		}
		owners = append(owners, map[string]any{
			"apiVersion": reference.APIVersion, "kind": reference.Kind, "name": reference.Name, "uid": state,
			"controller":         reference.Controller != nil && *reference.Controller,
			"blockOwnerDeletion": reference.BlockOwnerDeletion != nil && *reference.BlockOwnerDeletion,
		})
	}
	return owners
}

// renameTokenVolumes walks a Pod's spec and gives token volumes, and mounts of them, one name.
func renameTokenVolumes(node any) {
	switch typed := node.(type) {
	case map[string]any:
		if name, ok := typed["name"].(string); ok && tokenVolume.MatchString(name) {
			typed["name"] = "kube-api-access"
		}
		for _, child := range typed {
			renameTokenVolumes(child)
		}
	case []any:
		for _, child := range typed {
			renameTokenVolumes(child)
		}
	}
}
