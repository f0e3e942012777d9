package apply

// resetPod gives the pod back to the scheduler and to the ServiceAccount admission: node, computed
// priority and the account's token go. Ephemeral containers can only be added to a running pod.
func resetPod(obj object, _ *ResetOptions) {
	spec := childObject(obj, "spec")
	if spec == nil {
		return
	}
	dropKeys(spec, "nodeName", "priority", "ephemeralContainers")
	dropAccountToken(spec)
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
