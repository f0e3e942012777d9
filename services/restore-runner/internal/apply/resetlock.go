package apply

// leaderAnnot is where client-go's locks in ConfigMaps and Endpoints have their holder.
const leaderAnnot = "control-plane.alpha.kubernetes.io/leader"

// patroniHolder are the annotations in which Patroni's locks have their holder; the others are state.
var patroniHolder = []string{"leader", "acquireTime", "renewTime"}

// IsLock reports whether an object of a resource is one by which processes elect a leader.
func IsLock(obj map[string]any, resource string) bool {
	annotations := childObject(obj, "metadata", "annotations")
	switch resource {
	case "leases.coordination.k8s.io":
		return true
	case "configmaps", "endpoints":
		return annotations[leaderAnnot] != nil || annotations["leader"] != nil && annotations["renewTime"] != nil
	}
	return false
}

// clearHolder takes the holder out of a lock, who is of the old cluster: whoever comes back must not wait
// for it.
func clearHolder(obj object, resource string) {
	if !IsLock(obj, resource) {
		return
	}
	dropKeys(childObject(obj, "spec"), "holderIdentity", "acquireTime", "renewTime")
	annotations := childObject(obj, "metadata", "annotations")
	dropKeys(annotations, leaderAnnot)
	if annotations["leader"] != nil && annotations["renewTime"] != nil {
		dropKeys(annotations, patroniHolder...)
	}
}

// HoldsNothing reports that an object of a resource is a lock by its mere existence, if by anything: it
// holds no data.
func HoldsNothing(obj map[string]any, resource string) bool {
	switch resource {
	case "configmaps":
		return len(childObject(obj, "data")) == 0 && len(childObject(obj, "binaryData")) == 0
	case "endpoints":
		return len(objectList(obj, "subsets")) == 0
	}
	return false
}
