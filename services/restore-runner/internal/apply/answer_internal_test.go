package apply

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func invalidError(errs ...*field.Error) error {
	return fmt.Errorf("create: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "X"}, "m", errs))
}

func refusedRequest(t *testing.T, resource schema.GroupVersionResource, text string) *Request {
	t.Helper()
	r := &Request{Target: Target{GVR: resource}}
	require.NoError(t, json.Unmarshal([]byte(text), &r.Object))
	return r
}

var (
	servicesV1  = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	ingressesV1 = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
)

func TestAnswersToRefusals(t *testing.T) {
	ports := field.NewPath("spec", "ports")
	for name, tt := range map[string]struct {
		resource schema.GroupVersionResource
		object   string
		err      error
		want     string // "" is no answer
		warning  string
	}{
		"node port that is taken": {servicesV1, `{"spec":{"ports":[{"port":80,"nodePort":30080},{"port":81,"nodePort":30081}]}}`,
			invalidError(field.Invalid(ports.Index(1).Child("nodePort"), 30081, "provided port is already allocated")),
			`{"spec":{"ports":[{"port":80,"nodePort":30080},{"port":81}]}}`, "nodePort 30081 of port 81 could not be kept"},
		"node port of another range": {servicesV1, `{"spec":{"ports":[{"port":80,"nodePort":20080}]}}`,
			invalidError(field.Invalid(ports.Index(0).Child("nodePort"), 20080, "provided port is not in the valid range. The range of valid ports is 30000-32767")),
			`{"spec":{"ports":[{"port":80}]}}`, "nodePort 20080 of port 80 could not be kept"},
		"health check port": {servicesV1, `{"spec":{"healthCheckNodePort":31000}}`,
			apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort 31000: provided port is already allocated")),
			`{"spec":{}}`, "healthCheckNodePort 31000 could not be kept"},
		"cluster IP": {servicesV1, `{"spec":{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"]}}`,
			invalidError(field.Invalid(field.NewPath("spec", "clusterIPs"), []string{"10.0.0.7"}, "failed to allocate IP 10.0.0.7: provided IP is already allocated")),
			`{"spec":{}}`, "clusterIP 10.0.0.7 could not be kept"},
		"cluster IP of another range": {servicesV1, `{"spec":{"clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"]}}`,
			invalidError(field.Invalid(field.NewPath("spec", "clusterIPs"), []string{"10.0.0.7"}, "failed to allocate IP 10.0.0.7: the provided network does not match the current range")),
			`{"spec":{}}`, "clusterIP 10.0.0.7 could not be kept"},
		"another fault of a Service": {servicesV1, `{"spec":{"ports":[{"port":80,"nodePort":30080}]}}`,
			invalidError(field.Invalid(ports.Index(0).Child("nodePort"), 30080, "may not be used when type is ClusterIP")), "", ""},
		"two classes": {ingressesV1, `{"metadata":{"annotations":{"kubernetes.io/ingress.class":"old","k":"v"}},"spec":{"ingressClassName":"new"}}`,
			invalidError(field.Invalid(field.NewPath("annotations").Child(classAnnotation), "old", "must match ingressClassName when both are specified")),
			`{"metadata":{"annotations":{"k":"v"}},"spec":{"ingressClassName":"new"}}`, "annotation kubernetes.io/ingress.class: old is left out"},
		"a class that admission refuses": {ingressesV1, `{"metadata":{"annotations":{"kubernetes.io/ingress.class":"old"}},"spec":{}}`,
			apierrors.NewForbidden(schema.GroupResource{}, "m", fmt.Errorf("kubernetes.io/ingress.class is not allowed")), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := refusedRequest(t, tt.resource, tt.object)
			body, ok := r.answerRefusal(tt.err)
			require.Equal(t, tt.want != "", ok)
			if !ok {
				require.Empty(t, r.without)
				return
			}
			require.JSONEq(t, tt.want, string(body))
			require.Contains(t, r.without, tt.warning)
		})
	}
}

// What a creation was answered with is no difference the next time; what somebody set since is one.
func TestAnswersAreLeftOutOfComparisons(t *testing.T) {
	const restored = `"labels":{"velero.io/restore-name":"r"}`
	for name, tt := range map[string]struct {
		resource     schema.GroupVersionResource
		object, live string
		meta         string
		equal        bool
	}{
		"assigned port":           {servicesV1, `{"spec":{"ports":[{"port":80,"nodePort":1}]}}`, `{"spec":{"ports":[{"port":80,"nodePort":2}]}}`, `{` + restored + `}`, true},
		"port of another Service": {servicesV1, `{"spec":{"ports":[{"port":80,"nodePort":1}]}}`, `{"spec":{"ports":[{"port":80,"nodePort":2}]}}`, `{}`, false},
		"port that was set": {servicesV1, `{"spec":{"ports":[{"port":80,"nodePort":1}]}}`, `{"spec":{"ports":[{"port":80,"nodePort":2}]}}`,
			`{` + restored + `,"managedFields":[{"fieldsV1":{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{"f:nodePort":{}}}}}}]}`, false},
		"assigned address": {servicesV1, `{"spec":{"clusterIP":"a","clusterIPs":["a"]}}`, `{"spec":{"clusterIP":"b","clusterIPs":["b"]}}`, `{` + restored + `}`, true},
		"headless":         {servicesV1, `{"spec":{"clusterIP":"None"}}`, `{"spec":{"clusterIP":"b"}}`, `{` + restored + `}`, false},
		"two classes": {ingressesV1, `{"metadata":{"annotations":{"kubernetes.io/ingress.class":"old"}},"spec":{"ingressClassName":"new"}}`,
			`{"metadata":{},"spec":{"ingressClassName":"new"}}`, `{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := refusedRequest(t, tt.resource, tt.object)
			var live, meta object
			require.NoError(t, json.Unmarshal([]byte(tt.live), &live))
			require.NoError(t, json.Unmarshal([]byte(tt.meta), &meta))
			r.settleAnswers(live, meta["labels"] != nil, r.assignedAddresses(meta))
			if tt.equal {
				require.Equal(t, live, r.Object)
			} else {
				require.NotEqual(t, live, r.Object)
			}
		})
	}
}
