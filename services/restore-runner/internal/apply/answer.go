package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

const classAnnotation = "kubernetes.io/ingress.class"

// notAllocated are the words of kube-apiserver 1.36 for ports and addresses that it cannot assign.
var notAllocated = regexp.MustCompile(`already allocated|not in the valid range|does not match the current range`)

// answerRefusal takes off the object what the API server refuses and what can be restored in another way,
// and returns the object encoded. False where nothing changed.
func (r *Request) answerRefusal(err error) (body []byte, changed bool) {
	var warnings []string
	switch r.GVR.GroupResource().String() {
	case "services":
		warnings = yieldAddresses(childObject(r.Object, "spec"), refusalCauses(err))
	case "ingresses.networking.k8s.io":
		warnings = yieldClass(r.Object, refusalCauses(err))
	case "pods":
		if r.dropped == nil { // one retry
			r.dropped = r.Injections.dropInjected(childObject(r.Object, "spec"), refusalCauses(err))
			changed = len(r.dropped) > 0
		}
	}
	if len(warnings) == 0 && !changed {
		return nil, false
	}
	if body, err = json.Marshal(r.Object); err != nil {
		return nil, false
	}
	if len(warnings) > 0 {
		r.noteChange(strings.Join(warnings, "; "))
	}
	return body, true
}

// checkInjected notes what was left out of a created Pod, since admission adds it, and was not added.
func (c *Client) checkInjected(ctx context.Context, r *Request) {
	if len(r.dropped) == 0 {
		return
	}
	raw, err := c.getObject(ctx, r.Target)
	var live object
	if err == nil {
		live, err = jsonlimit.UnmarshalObject(raw)
	}
	r.noteLacking(live, err)
}

// noteLacking notes what was left out of a Pod and is not in the live one. unknown is why there is none.
func (r *Request) noteLacking(live object, unknown error) {
	for _, part := range r.dropped {
		switch {
		case unknown != nil:
			r.noteChange(fmt.Sprintf("%s %s is left out, since the API server refuses it beside what admission adds; whether it was added is not known: %v", part.kind, part.name, unknown))
		case lacksPart(childObject(live, "spec"), part):
			r.noteChange(fmt.Sprintf("%s %s is left out, since the API server refuses it beside what admission adds, and was not added again", part.kind, part.name))
		}
	}
}

// noteLeftOut notes what an object that this restore created lacks of the stored one. The process that left it out
// may have ended before its warning was recorded.
func (r *Request) noteLeftOut(live object) {
	spec, liveSpec := childObject(r.Object, "spec"), childObject(live, "spec")
	var warnings []string
	switch r.GVR.GroupResource().String() {
	case "services":
		warnings = yieldAddresses(spec, otherAddresses(spec, liveSpec))
	case "ingresses.networking.k8s.io":
		if textOf(childObject(live, "metadata", "annotations"), classAnnotation) == "" {
			warnings = yieldClass(r.Object, []metav1.StatusCause{{Field: classAnnotation}})
		}
	case "pods":
		if r.dropped == nil {
			r.dropped = r.Injections.namedParts(spec)
		}
		r.noteLacking(live, nil)
	}
	if len(warnings) > 0 {
		r.noteChange(strings.Join(warnings, "; "))
	}
}

// otherAddresses returns the ports and addresses of a Service that are others in the live one, as a refusal names
// them.
func otherAddresses(spec, live object) (causes []metav1.StatusCause) {
	compare := func(field, subject string, from, to object, key string) {
		if stored, now := from[key], to[key]; stored != nil && now != nil && fmt.Sprint(stored) != fmt.Sprint(now) {
			causes = append(causes, metav1.StatusCause{Field: field, Message: fmt.Sprintf("%sit was already allocated or not in the valid range, the Service has %v", subject, now)})
		}
	}
	compare("", "HealthCheck NodePort: ", spec, live, "healthCheckNodePort")
	compare("spec.clusterIP", "", spec, live, "clusterIP")
	for i, port := range objectList(spec, "ports") {
		for _, other := range objectList(live, "ports") {
			if keyOf(port) == keyOf(other) {
				compare(fmt.Sprintf("spec.ports[%d].nodePort", i), "", port, other, "nodePort")
			}
		}
	}
	return causes
}

// noteChange adds to the warning about what the object is created without.
func (r *Request) noteChange(warning string) {
	if r.without != "" {
		warning = r.without + "; " + warning
	}
	r.without = warning
}

// refusalCauses returns the fields that the API server refuses, and why; without a field where it names
// none.
func refusalCauses(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	if details := status.Status().Details; details != nil && len(details.Causes) > 0 && details.Causes[0].Field != "" {
		return details.Causes
	}
	return []metav1.StatusCause{{Message: status.Status().Message}}
}

// yieldAddresses leaves ports and addresses of a Service to the API server that are taken, or that this
// cluster does not have.
func yieldAddresses(spec object, causes []metav1.StatusCause) (warnings []string) {
	for _, cause := range causes {
		if !notAllocated.MatchString(cause.Message) {
			continue
		}
		if strings.Contains(cause.Message, "HealthCheck NodePort") && spec["healthCheckNodePort"] != nil {
			warnings = append(warnings, fmt.Sprintf("healthCheckNodePort %v could not be kept, the API server assigns another one: %s", spec["healthCheckNodePort"], cause.Message))
			delete(spec, "healthCheckNodePort")
			continue
		}
		if strings.HasPrefix(cause.Field, "spec.clusterIP") && spec["clusterIP"] != nil {
			warnings = append(warnings, fmt.Sprintf("clusterIP %v could not be kept, the API server assigns another one: %s", spec["clusterIP"], cause.Message))
			dropKeys(spec, "clusterIP", "clusterIPs")
			continue
		}
		for i, port := range objectList(spec, "ports") {
			if cause.Field == fmt.Sprintf("spec.ports[%d].nodePort", i) && port["nodePort"] != nil {
				warnings = append(warnings, fmt.Sprintf("nodePort %v of port %v could not be kept, the API server assigns another one: %s", port["nodePort"], port["port"], cause.Message))
				delete(port, "nodePort")
			}
		}
	}
	return warnings
}

// yieldClass keeps the field of an Ingress whose annotation names another class: an update is accepted
// with both, a creation is not.
func yieldClass(obj object, causes []metav1.StatusCause) []string {
	about := func(cause metav1.StatusCause) bool {
		return strings.Contains(cause.Field+cause.Message, classAnnotation)
	}
	class := dropClass(obj)
	if class == "" || !slices.ContainsFunc(causes, about) {
		return nil
	}
	return []string{fmt.Sprintf("annotation %s: %s is left out: the API server refuses it beside spec.ingressClassName: %v",
		classAnnotation, class, childObject(obj, "spec")["ingressClassName"])}
}

// dropClass removes the annotation of an Ingress that contradicts its field, and returns its value.
func dropClass(obj object) string {
	annotations := childObject(obj, "metadata", "annotations")
	class, field := textOf(annotations, classAnnotation), textOf(childObject(obj, "spec"), "ingressClassName")
	if class == "" || field == "" || class == field {
		return ""
	}
	delete(annotations, classAnnotation)
	dropEmpty(childObject(obj, "metadata"), "annotations")
	return class
}

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
		return obj["binaryData"] == nil && (len(data) == 0 || len(data) == 1 && strings.Contains(textOf(data, key), "-----BEGIN CERTIFICATE-----"))
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
			if keyOf(port) == keyOf(other) && !asked.keyed[keyOf(port)] {
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
