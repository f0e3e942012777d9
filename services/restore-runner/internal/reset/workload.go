package reset

import "strings"

// resetPod gives the pod back to the scheduler and to the ServiceAccount admission: node, computed
// priority and injected token volumes go. Ephemeral containers can only be added to a running pod.
func resetPod(obj object, _ *Options) {
	spec := child(obj, "spec")
	if spec == nil {
		return
	}
	drop(spec, "nodeName", "priority", "ephemeralContainers")
	account := text(spec, "serviceAccountName")
	injected := func(volume string) bool {
		return strings.HasPrefix(volume, "kube-api-access-") || (account != "" && strings.HasPrefix(volume, account+"-token-"))
	}
	gone := map[string]bool{}
	filter(spec, "volumes", func(v object) bool {
		name := text(v, "name")
		if injected(name) && (v["projected"] != nil || v["secret"] != nil) {
			gone[name] = true
		}
		return !gone[name]
	})
	for _, list := range []string{"containers", "initContainers"} {
		for _, container := range objects(spec, list) {
			filter(container, "volumeMounts", func(m object) bool { return !gone[text(m, "name")] })
		}
	}
}

// resetJob drops the labels by which the old Job's controller found its pods: the API server
// generates new ones.
func resetJob(obj object, _ *Options) {
	spec := child(obj, "spec")
	generated := []string{"controller-uid", "batch.kubernetes.io/controller-uid"}
	drop(child(spec, "selector", "matchLabels"), generated...)
	drop(child(spec, "template", "metadata", "labels"), generated...)
	drop(child(obj, "metadata", "labels"), generated...)
}
