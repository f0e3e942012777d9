package apply

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
