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
	for _, part := range r.dropped {
		switch {
		case err != nil:
			r.noteChange(fmt.Sprintf("%s %s is left out, since the API server refuses it beside what admission adds; whether it was added is not known: %v", part.kind, part.name, err))
		case lacksPart(childObject(live, "spec"), part):
			r.noteChange(fmt.Sprintf("%s %s is left out, since the API server refuses it beside what admission adds, and was not added again", part.kind, part.name))
		}
	}
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

// settleAnswers leaves out of the comparison with a live object, and of its update, what its creation
// may have been answered with. restored reports that a restore created it, asked is that of assignedAddresses.
func (r *Request) settleAnswers(live object, restored bool, asked *explicitPorts) {
	switch {
	case r.GVR.Group == "networking.k8s.io" && r.GVR.Resource == "ingresses":
		dropClass(r.Object)
		dropClass(live)
	case r.GVR.Group == "" && r.GVR.Resource == "pods" && restored:
		r.Injections.settleInjected(r.Object, live)
	case asked != nil:
		settleAddresses(childObject(r.Object, "spec"), childObject(live, "spec"), asked)
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
