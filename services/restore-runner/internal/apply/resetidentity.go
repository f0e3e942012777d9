package apply

import "maps"

// referencePaths are where built-in kinds refer to another object by a reference that the API
// documents with a UID. Lists are passed through.
var referencePaths = map[string][][]string{
	"serviceaccounts":                 {{"secrets"}},
	"endpoints":                       {{"subsets", "addresses", "targetRef"}, {"subsets", "notReadyAddresses", "targetRef"}},
	"events":                          {{"involvedObject"}, {"related"}},
	"events.events.k8s.io":            {{"regarding"}, {"related"}},
	"endpointslices.discovery.k8s.io": {{"endpoints", "targetRef"}},
}

// dropIdentities removes the UIDs that references of an object have from the old cluster. The names
// stay, under which the API finds the objects of today.
func dropIdentities(obj object, gr string) {
	for _, path := range referencePaths[gr] {
		for _, reference := range objectsAt(obj, path...) {
			dropKeys(reference, "uid", "resourceVersion")
		}
	}
}

// templatePaths are where built-in kinds have the metadata of claims and Pods that are made of them.
var templatePaths = [][]string{
	{"spec", "template", "metadata"}, {"spec", "volumeClaimTemplates", "metadata"},
	{"spec", "jobTemplate", "metadata"}, {"spec", "jobTemplate", "spec", "template", "metadata"},
	{"template", "metadata"},
}

// templateKinds are the kinds with such templates.
var templateKinds = map[any]bool{"StatefulSet": true, "Deployment": true, "DaemonSet": true, "ReplicaSet": true, "ReplicationController": true,
	"Job": true, "CronJob": true, "PodTemplate": true}

// TemplateOwners returns the metadata of the templates of an object that have owner references.
func TemplateOwners(obj map[string]any) (owned []map[string]any) {
	if !templateKinds[obj["kind"]] {
		return nil
	}
	for _, path := range templatePaths {
		for _, meta := range objectsAt(obj, path...) {
			if meta["ownerReferences"] != nil {
				owned = append(owned, meta)
			}
		}
	}
	return owned
}

// dropTemplateOwners removes the owner references of templates: what they are now depends on what
// is live, so that they say nothing about a difference.
func dropTemplateOwners(obj object) {
	for _, meta := range TemplateOwners(obj) {
		dropKeys(meta, "ownerReferences")
	}
}

// objectsAt returns the objects at a path, whose members may be lists of objects.
func objectsAt(o object, path ...string) []object {
	found := []object{o}
	for _, key := range path {
		var next []object
		for _, member := range found {
			if child := childObject(member, key); child != nil {
				next = append(next, child)
			}
			next = append(next, objectList(member, key)...)
		}
		found = next
	}
	return found
}

// OwnTemplates lets the templates of an object be changed, which actions may hold still.
func OwnTemplates(obj map[string]any) map[string]any {
	obj = maps.Clone(obj)
	for _, key := range []string{"spec", "template"} {
		if obj[key] != nil {
			obj[key] = cloneValue(obj[key])
		}
	}
	return obj
}
