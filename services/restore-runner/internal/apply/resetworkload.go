package apply

import "strings"

// resetPod gives the pod back to the scheduler and to the ServiceAccount admission: node, computed
// priority and injected token volumes go. Ephemeral containers can only be added to a running pod.
func resetPod(obj object, _ *ResetOptions) {
	spec := childObject(obj, "spec")
	if spec == nil {
		return
	}
	dropKeys(spec, "nodeName", "priority", "ephemeralContainers")
	account := textOf(spec, "serviceAccountName")
	injected := func(volume string) bool {
		return strings.HasPrefix(volume, "kube-api-access-") || (account != "" && strings.HasPrefix(volume, account+"-token-"))
	}
	gone := map[string]bool{}
	filterList(spec, "volumes", func(v object) bool {
		name := textOf(v, "name")
		if injected(name) && (v["projected"] != nil || v["secret"] != nil) {
			gone[name] = true
		}
		return !gone[name]
	})
	for _, list := range []string{"containers", "initContainers"} {
		for _, container := range objectList(spec, list) {
			filterList(container, "volumeMounts", func(m object) bool { return !gone[textOf(m, "name")] })
		}
	}
}

// resetJob drops the labels by which the old Job's controller found its pods: the API server
// generates new ones.
func resetJob(obj object, _ *ResetOptions) {
	spec := childObject(obj, "spec")
	generated := []string{"controller-uid", "batch.kubernetes.io/controller-uid"}
	dropKeys(childObject(spec, "selector", "matchLabels"), generated...)
	dropKeys(childObject(spec, "template", "metadata", "labels"), generated...)
	dropKeys(childObject(obj, "metadata", "labels"), generated...)
}
