package apply

import "strings"

// assignedAddresses returns, of the metadata of a live Service that a restore created, what somebody asked
// for: the API server assigned the rest. Nil for every other object.
func (r *Request) assignedAddresses(meta object) *explicitPorts {
	if r.GVR.Group != "" || r.GVR.Resource != "services" || len(RestoreLabels(childObject(meta, "labels"))) == 0 {
		return nil
	}
	asked := newExplicitPorts()
	for _, entry := range objectList(meta, "managedFields") {
		asked.addManaged(childObject(entry, "fieldsV1", "f:spec"))
	}
	return asked
}

// controllerAnnotations are annotations that controllers write, by resource.
var controllerAnnotations = map[string][]string{
	"deployments.apps": {"deployment.kubernetes.io/revision"},
	"replicasets.apps": {"deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history", "deployment.kubernetes.io/desired-replicas",
		"deployment.kubernetes.io/max-replicas"},
	"daemonsets.apps": {"deprecated.daemonset.template.generation"},
}

// settleAnswers leaves out of the comparison with a live object, and of its update, what its creation
// may have been answered with, and what the cluster writes into it. asked is that of assignedAddresses.
func (r *Request) settleAnswers(live object, asked *explicitPorts) {
	resource := r.GVR.GroupResource().String()
	switch {
	case resource == "ingresses.networking.k8s.io":
		dropClass(r.Object)
		dropClass(live)
	case resource == "pods":
		r.Injections.settleInjected(r.Object, live)
	case resource == "configmaps":
		settlePublished(r.Object, live)
	case templateKinds[r.Object["kind"]]:
		r.Injections.settleTemplates(r.Object, live)
	case asked != nil:
		settleAddresses(childObject(r.Object, "spec"), childObject(live, "spec"), asked)
	}
	for _, key := range controllerAnnotations[resource] {
		followAnnotation(r.Object, live, key)
	}
}

// publications are the ConfigMaps whose only data is a certificate that the cluster publishes in them. A value of ""
// stands for any; people set the marks with a value themselves.
var publications = []struct{ name, field, mark, value, key string }{
	{"kube-root-ca.crt", "annotations", "kubernetes.io/description", "", "ca.crt"},
	{"istio-ca-root-cert", "labels", "istio.io/config", "true", "root-cert.pem"},
	{"", "annotations", "service.beta.openshift.io/inject-cabundle", "true", "service-ca.crt"},
	{"", "labels", "config.openshift.io/inject-trusted-cabundle", "true", "ca-bundle.crt"},
}

// settlePublished accepts the certificate that the cluster publishes in a live ConfigMap.
func settlePublished(want, live object) {
	holdsOnly := func(obj object, key string) bool {
		data := childObject(obj, "data")
		return len(data) == 0 || len(data) == 1 && strings.Contains(textOf(data, key), "-----BEGIN CERTIFICATE-----")
	}
	for _, p := range publications {
		stored, now := childObject(want, "metadata", p.field)[p.mark], childObject(live, "metadata", p.field)[p.mark]
		named := p.name == "" || textOf(childObject(live, "metadata"), "name") == p.name
		marked := now == p.value && stored == p.value || p.value == "" && now != nil
		if named && marked && holdsOnly(live, p.key) && holdsOnly(want, p.key) {
			followField(want, live, "data")
			followAnnotation(want, live, "kubernetes.io/description")
			return
		}
	}
}

// settleAddresses accepts ports and addresses of a live Service that nobody asked for.
func settleAddresses(spec, live object, asked *explicitPorts) {
	if spec == nil || live == nil {
		return
	}
	if !asked.healthCheck {
		followField(spec, live, "healthCheckNodePort")
	}
	if !asked.address && textOf(spec, "clusterIP") != "None" && textOf(live, "clusterIP") != "None" {
		followField(spec, live, "clusterIP")
		followField(spec, live, "clusterIPs")
	}
	for _, port := range objectList(spec, "ports") {
		for _, other := range objectList(live, "ports") {
			if newPortKey(port) == newPortKey(other) && !asked.keyed[newPortKey(port)] {
				followField(port, other, "nodePort")
			}
		}
	}
}

// followField gives an object a field of another, or none where that has none.
func followField(to, from object, key string) {
	delete(to, key)
	if v, ok := from[key]; ok {
		to[key] = v
	}
}

// followAnnotation does it with an annotation.
func followAnnotation(to, from object, key string) {
	meta, live := childObject(to, "metadata"), childObject(from, "metadata", "annotations")
	if meta == nil {
		return
	}
	if live[key] != nil && childObject(meta, "annotations") == nil {
		meta["annotations"] = object{}
	}
	if annotations := childObject(meta, "annotations"); annotations != nil {
		followField(annotations, live, key)
		dropEmpty(meta, "annotations")
	}
}
