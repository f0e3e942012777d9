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
	mapsV1      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	workloadsV1 = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
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
			r.settleAnswers(live, r.assignedAddresses(meta))
			if tt.equal {
				require.Equal(t, live, r.Object)
			} else {
				require.NotEqual(t, live, r.Object)
			}
		})
	}
}

// A runner was killed between a creation and the record of it: its successor finds the object, and nobody told what
// it lacks.
func TestASuccessorTellsWhatAnObjectWasCreatedWithout(t *testing.T) {
	for name, tt := range map[string]struct {
		resource     schema.GroupVersionResource
		stored, live string
		warnings     []string
	}{
		"ports and addresses": {servicesV1, `{"spec":{"clusterIP":"10.0.0.1","healthCheckNodePort":30001,"ports":[{"port":80,"nodePort":30002},{"port":81,"nodePort":30003}]}}`,
			`{"spec":{"clusterIP":"10.0.0.9","healthCheckNodePort":30008,"ports":[{"port":81,"nodePort":30003},{"port":80,"nodePort":30009}]}}`,
			[]string{"healthCheckNodePort 30001 could not be kept", "the Service has 30008", "clusterIP 10.0.0.1 could not be kept", "nodePort 30002 of port 80 could not be kept", "the Service has 30009"}},
		"the same ports":  {servicesV1, `{"spec":{"clusterIP":"None","ports":[{"port":80,"nodePort":30002},{"port":81}]}}`, `{"spec":{"clusterIP":"None","ports":[{"port":80,"nodePort":30002},{"port":81,"nodePort":30003}]}}`, nil},
		"another type":    {servicesV1, `{"spec":{"ports":[{"port":80,"nodePort":30002}]}}`, `{"spec":{"ports":[{"port":80}]}}`, nil},
		"a class":         {ingressesV1, `{"metadata":{"annotations":{"kubernetes.io/ingress.class":"old"}},"spec":{"ingressClassName":"new"}}`, `{"metadata":{},"spec":{"ingressClassName":"new"}}`, []string{"annotation kubernetes.io/ingress.class: old is left out"}},
		"a class that is": {ingressesV1, `{"metadata":{"annotations":{"kubernetes.io/ingress.class":"old"}},"spec":{"ingressClassName":"new"}}`, `{"metadata":{"annotations":{"kubernetes.io/ingress.class":"old"}},"spec":{"ingressClassName":"new"}}`, nil},
		"an owner that is not blocked": {mapsV1, `{"metadata":{"ownerReferences":[{"uid":"1","blockOwnerDeletion":true},{"uid":"2","blockOwnerDeletion":true}]}}`,
			`{"metadata":{"ownerReferences":[{"uid":"2"},{"uid":"1"}]}}`, []string{Unblocked}},
		"an owner that is blocked": {mapsV1, `{"metadata":{"ownerReferences":[{"uid":"1","blockOwnerDeletion":true},{"uid":"2"}]}}`,
			`{"metadata":{"ownerReferences":[{"uid":"2"},{"uid":"1","blockOwnerDeletion":true}]}}`, nil},
		"injected parts": {podsV1, injectedPod, `{"spec":{"containers":[{"name":"app"}],"initContainers":[],"volumes":[{"name":"data"}]}}`,
			[]string{"container istio-proxy is left out", "container copy-vault-env is left out", "volume vault-env is left out"}},
		"injected again": {podsV1, injectedPod, `{"spec":{"containers":[{"name":"istio-proxy","image":"2"},{"name":"app"}],"initContainers":[{"name":"copy-vault-env"}],"volumes":[{"name":"vault-env"}]}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := refusedRequest(t, tt.resource, tt.stored)
			r.Injections = BuiltinInjections
			live := refusedRequest(t, tt.resource, tt.live).Object
			r.noteLeftOut(live)
			for _, warning := range tt.warnings {
				require.Contains(t, r.without, warning)
			}
			require.Equal(t, len(tt.warnings) == 0, r.without == "", r.without)
			told := r.without
			r.dropped = []injectedPart{}
			r.noteLeftOut(live)
			require.Equal(t, told, r.without, "what was told already is not told again")
		})
	}
}

// The certificates of another cluster differ from those that the cluster publishes, which never change for it.
func TestPublishedCertificatesAreNoDifference(t *testing.T) {
	const pem = "-----BEGIN CERTIFICATE----- "
	published := func(name, mark, data string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q%s},"data":{%s}}`, name, mark, data)
	}
	const root, inject = `,"annotations":{"kubernetes.io/description":"Contains a CA bundle"}`, `,"annotations":{"service.beta.openshift.io/inject-cabundle":"true"}`
	const trusted, istio = `,"labels":{"config.openshift.io/inject-trusted-cabundle":"true"}`, `,"labels":{"istio.io/config":"true"}`
	cert := func(key, text string) string { return fmt.Sprintf(`%q:"%s%s"`, key, pem, text) }
	for name, tt := range map[string]struct {
		stored, live string
		equal        bool
	}{
		"of the API server":           {published("kube-root-ca.crt", root, cert("ca.crt", "old")), published("kube-root-ca.crt", root, cert("ca.crt", "new")), true},
		"of an older API server":      {published("kube-root-ca.crt", "", cert("ca.crt", "old")), published("kube-root-ca.crt", root, cert("ca.crt", "new")), true},
		"not published":               {published("kube-root-ca.crt", "", cert("ca.crt", "old")), published("kube-root-ca.crt", "", cert("ca.crt", "new")), false},
		"of another name":             {published("ca", root, cert("ca.crt", "old")), published("ca", root, cert("ca.crt", "new")), false},
		"with data of a user":         {published("kube-root-ca.crt", root, cert("ca.crt", "old")+`,"k":"v"`), published("kube-root-ca.crt", root, cert("ca.crt", "new")), false},
		"no certificate":              {published("kube-root-ca.crt", root, `"ca.crt":"x"`), published("kube-root-ca.crt", root, cert("ca.crt", "new")), false},
		"injected by OpenShift":       {published("openshift-service-ca.crt", inject, cert("service-ca.crt", "old")), published("openshift-service-ca.crt", inject, cert("service-ca.crt", "new")), true},
		"injected into a user's":      {published("mine", inject, cert("service-ca.crt", "old")), published("mine", inject, ""), true},
		"injected since the backup":   {published("mine", "", cert("service-ca.crt", "old")), published("mine", inject, cert("service-ca.crt", "new")), false},
		"trusted by OpenShift":        {published("mine", trusted, cert("ca-bundle.crt", "old")), published("mine", trusted, cert("ca-bundle.crt", "new")), true},
		"of Istio":                    {published("istio-ca-root-cert", istio, cert("root-cert.pem", "old")), published("istio-ca-root-cert", istio, cert("root-cert.pem", "new")), true},
		"another of a label of Istio": {published("mine", istio, cert("root-cert.pem", "old")), published("mine", istio, cert("root-cert.pem", "new")), false},
	} {
		t.Run(name, func(t *testing.T) {
			r, live := refusedRequest(t, mapsV1, tt.stored), refusedRequest(t, mapsV1, tt.live).Object
			r.settleAnswers(live, nil)
			require.Equal(t, tt.equal, string(encoded(t, r.Object)) == string(encoded(t, live)))
		})
	}
}

// The controller counts the revisions of a Deployment anew: each restore found it changed.
func TestAnnotationsOfControllersAreNoDifference(t *testing.T) {
	stored := `{"kind":"Deployment","metadata":{"annotations":{"deployment.kubernetes.io/revision":"2","k":"v"}},"spec":{}}`
	for live, equal := range map[string]bool{
		`{"kind":"Deployment","metadata":{"annotations":{"deployment.kubernetes.io/revision":"4","k":"v"}},"spec":{}}`: true,
		`{"kind":"Deployment","metadata":{"annotations":{"k":"v"}},"spec":{}}`:                                         true,
		`{"kind":"Deployment","metadata":{},"spec":{}}`:                                                                false,
	} {
		r, now := refusedRequest(t, workloadsV1, stored), refusedRequest(t, workloadsV1, live).Object
		r.settleAnswers(now, nil)
		require.Equal(t, equal, string(encoded(t, r.Object)) == string(encoded(t, now)), live)
	}
	r := refusedRequest(t, workloadsV1, `{"kind":"Deployment","metadata":{},"spec":{}}`)
	r.settleAnswers(refusedRequest(t, workloadsV1, stored).Object, nil)
	require.JSONEq(t, `{"kind":"Deployment","metadata":{"annotations":{"deployment.kubernetes.io/revision":"2"}},"spec":{}}`, string(encoded(t, r.Object)))
}
