package apply

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

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
	fate := "was not added again"
	if unknown != nil {
		fate = fmt.Sprintf("whether it was added is not known: %v", unknown)
	}
	for _, part := range r.dropped {
		if unknown != nil || lacksPart(childObject(live, "spec"), part) {
			r.noteChange(fmt.Sprintf("%s %s is left out, since the API server refuses it beside what admission adds, and %s", part.kind, part.name, fate))
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
	for _, ref := range objectsAt(r.Object, "metadata", "ownerReferences") {
		for _, now := range objectsAt(live, "metadata", "ownerReferences") {
			if !r.unblocked && ref["uid"] == now["uid"] && ref["blockOwnerDeletion"] == true && now["blockOwnerDeletion"] != true {
				r.unblocked = true
				warnings = append(warnings, Unblocked)
			}
		}
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
			if newPortKey(port) == newPortKey(other) {
				compare(fmt.Sprintf("spec.ports[%d].nodePort", i), "", port, other, "nodePort")
			}
		}
	}
	return causes
}
