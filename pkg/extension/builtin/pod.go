package builtin

import (
	"bytes"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// podClaims returns the claims that a Pod of the namespace mounts. Claims of the Pod's own
// ephemeral volumes are not among them: they belong to the Pod and are made anew with it.
func podClaims(pod object, namespace string) ([]action.Item, error) {
	var items []action.Item
	err := eachObject(pod, func(volume object) error {
		name, ok, err := textAt(volume, "persistentVolumeClaim", "claimName")
		if ok && name != "" {
			items = append(items, action.Item{GroupResource: claims, Namespace: namespace, Name: name})
		}
		return err
	}, "spec", "volumes")
	return uniqueElements(items), err
}

// podPriority returns the PriorityClass that a Pod names.
func podPriority(pod object) ([]action.Item, error) {
	name, ok, err := textAt(pod, "spec", "priorityClassName")
	if err != nil || !ok || name == "" {
		return nil, err
	}
	return []action.Item{{GroupResource: priorityClasses, Name: name}}, nil
}

// podNeeds returns what a Pod cannot be created without, as far as it is not a matter of course.
func podNeeds(pod *action.Object) ([]action.Item, error) {
	content, err := pod.Content()
	if err != nil {
		return nil, err
	}
	namespace, _, err := textAt(content, "metadata", "namespace")
	if err != nil {
		return nil, err
	}
	items, err := podClaims(content, namespace)
	if err != nil {
		return nil, err
	}
	class, err := podPriority(content)
	return append(items, class...), err
}

var claimName, priorityClassName, escape = []byte(`"claimName"`), []byte(`"priorityClassName"`), []byte(`\u`)

// concernsPod reports whether podNeeds may find something; a key can also be written with escapes.
func concernsPod(raw []byte) bool {
	return bytes.Contains(raw, claimName) || bytes.Contains(raw, priorityClassName) || bytes.Contains(raw, escape)
}
