package apply_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

func decodeObject(t testing.TB, s string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, utiljson.Unmarshal([]byte(s), &out))
	return out
}

// resetObject makes a stored object ready to be created.
func resetObject(obj map[string]any, gr schema.GroupResource, namespace string, o *apply.ResetOptions) {
	apply.NormalizeObject(obj, gr, o)
	apply.PlaceObject(obj, namespace, o)
}

func resetOptions() *apply.ResetOptions {
	return &apply.ResetOptions{
		Backup: "b", Restore: strings.Repeat("r", 70),
		MapNamespace: func(ns string) string { return map[string]string{"old": "new"}[ns] + strings.TrimPrefix(ns, "old") },
		Reprovision:  func(volume string) bool { return volume == "gone" },
	}
}

// TestKinds compares what is left of spec and the like, per kind.
func TestKinds(t *testing.T) {
	tests := map[string]struct{ resource, in, want string }{
		"pod": {"pods",
			`{"spec":{"nodeName":"n","priority":7,"priorityClassName":"p","serviceAccountName":"sa","ephemeralContainers":[{}],
			  "volumes":[` + projectedToken("kube-api-access-x2x4z", "") + `,{"name":"sa-token-x2x4z","secret":{"secretName":"sa-token-x2x4z"}},{"name":"data","emptyDir":{}}],
			  "containers":[{"name":"c","volumeMounts":[` + accountMount("kube-api-access-x2x4z") + `,{"name":"data","mountPath":"/d"}]}],
			  "initContainers":[{"name":"i","volumeMounts":[` + accountMount("sa-token-x2x4z") + `]}]}}`,
			`{"spec":{"priorityClassName":"p","serviceAccountName":"sa","volumes":[{"name":"data","emptyDir":{}}],
			  "containers":[{"name":"c","volumeMounts":[{"name":"data","mountPath":"/d"}]}],"initContainers":[{"name":"i"}]}}`},
		"job": {"jobs.batch",
			`{"spec":{"selector":{"matchLabels":{"controller-uid":"u","batch.kubernetes.io/controller-uid":"u"}},
			  "template":{"metadata":{"labels":{"controller-uid":"u","batch.kubernetes.io/controller-uid":"u","app":"x"}}}}}`,
			`{"spec":{"selector":{"matchLabels":{}},"template":{"metadata":{"labels":{"app":"x"}}}}}`},
		"service": {"services",
			`{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"healthCheckNodePort":31000,"ports":[{"port":80,"nodePort":30080}]}}`,
			`{"spec":{"ports":[{"port":80}]}}`},
		"headless service": {"services", `{"spec":{"clusterIP":"None","clusterIPs":["None"]}}`, `{"spec":{"clusterIP":"None","clusterIPs":["None"]}}`},
		"service with ports of its own": {"services",
			`{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"f:ports":{"k:{\"port\":81,\"protocol\":\"UDP\"}":{"f:nodePort":{}}}}}}],
			  "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{\"ports\":[{\"port\":80,\"nodePort\":30080}]}}"}},
			  "spec":{"ports":[{"port":80,"nodePort":30080},{"port":81,"protocol":"UDP","nodePort":30081},{"port":82,"nodePort":30082}]}}`,
			`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{\"ports\":[{\"port\":80,\"nodePort\":30080}]}}"}},
			  "spec":{"ports":[{"port":80,"nodePort":30080},{"port":81,"protocol":"UDP","nodePort":30081},{"port":82}]}}`},
		"service account": {"serviceaccounts",
			`{"metadata":{"name":"sa","managedFields":[{"manager":"kube-controller-manager","fieldsV1":{"f:secrets":{".":{},"k:{\"name\":\"sa-token-x\"}":{},"k:{\"name\":\"both\"}":{}}}},
			  {"manager":"kubectl","fieldsV1":{"f:secrets":{"k:{\"name\":\"both\"}":{}}}}]},"secrets":[{"name":"sa-token-x"},{"name":"sa-token-mine"},{"name":"both"}]}`,
			`{"metadata":{"name":"sa"},"secrets":[{"name":"sa-token-mine"},{"name":"both"}]}`},
		"service account that no controller wrote": {"serviceaccounts",
			`{"metadata":{"name":"sa"},"secrets":[{"name":"sa-token-x2x4z"}]}`, `{"metadata":{"name":"sa"},"secrets":[{"name":"sa-token-x2x4z"}]}`},
		"token secret": {"secrets",
			`{"type":"kubernetes.io/service-account-token","metadata":{"annotations":{"kubernetes.io/service-account.name":"sa","kubernetes.io/service-account.uid":"u"},
			  "labels":{"kubernetes.io/legacy-token-last-used":"2026-01-02"}},"data":{"token":"x","ca.crt":"y","namespace":"z","extra":"k"}}`,
			`{"type":"kubernetes.io/service-account-token","metadata":{"annotations":{"kubernetes.io/service-account.name":"sa"}},"data":{"extra":"k"}}`},
		"other secret": {"secrets", `{"type":"Opaque","data":{"token":"x"}}`, `{"type":"Opaque","data":{"token":"x"}}`},
		"role binding": {"rolebindings.rbac.authorization.k8s.io",
			`{"subjects":[{"kind":"ServiceAccount","namespace":"old"},{"kind":"User","name":"u"}]}`,
			`{"subjects":[{"kind":"ServiceAccount","namespace":"new"},{"kind":"User","name":"u"}]}`},
		"users and groups of accounts": {"clusterrolebindings.rbac.authorization.k8s.io",
			`{"subjects":[{"kind":"User","name":"system:serviceaccount:old:sa"},{"kind":"Group","name":"system:serviceaccounts:old"},{"kind":"Group","name":"system:serviceaccounts"},{"name":"old"}]}`,
			`{"subjects":[{"kind":"User","name":"system:serviceaccount:new:sa"},{"kind":"Group","name":"system:serviceaccounts:new"},{"kind":"Group","name":"system:serviceaccounts"},{"name":"old"}]}`},
		"constraints": {"securitycontextconstraints.security.openshift.io",
			`{"users":["system:serviceaccount:old:sa","old"],"groups":["system:serviceaccounts:old","system:authenticated"]}`,
			`{"users":["system:serviceaccount:new:sa","old"],"groups":["system:serviceaccounts:new","system:authenticated"]}`},
		"flow schema": {"flowschemas.flowcontrol.apiserver.k8s.io",
			`{"spec":{"rules":[{"subjects":[{"serviceAccount":{"namespace":"old","name":"sa"}},{"user":{"name":"system:serviceaccount:old:sa"}},{"group":{"name":"system:serviceaccounts:old"}}]}]}}`,
			`{"spec":{"rules":[{"subjects":[{"serviceAccount":{"namespace":"new","name":"sa"}},{"user":{"name":"system:serviceaccount:new:sa"}},{"group":{"name":"system:serviceaccounts:new"}}]}]}}`},
		"webhook by URL": {"mutatingwebhookconfigurations.admissionregistration.k8s.io",
			`{"webhooks":[{"name":"u","clientConfig":{"url":"https://old"}},{"name":"s","clientConfig":{"service":{"namespace":"old"}}}]}`,
			`{"webhooks":[{"name":"u","clientConfig":{"url":"https://old"}},{"name":"s","clientConfig":{"service":{"namespace":"new"}}}]}`},
		"local API": {"apiservices.apiregistration.k8s.io", `{"spec":{"service":null}}`, `{"spec":{"service":null}}`},
		"volume": {"persistentvolumes",
			`{"metadata":{"annotations":{"pv.kubernetes.io/bound-by-controller":"yes"}},"spec":{"claimRef":{"namespace":"old","name":"c","uid":"u","resourceVersion":"1"}}}`,
			`{"metadata":{},"spec":{"claimRef":{"namespace":"new","name":"c"}}}`},
		"claim": {"persistentvolumeclaims",
			`{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes","volume.kubernetes.io/selected-node":"n","mine":"1"}},"spec":{"volumeName":"kept"}}`,
			`{"metadata":{"annotations":{"mine":"1"}},"spec":{"volumeName":"kept"}}`},
		"claim of a new volume": {"persistentvolumeclaims", `{"spec":{"volumeName":"gone"}}`, `{"spec":{}}`},
		"endpoints": {"endpoints", `{"subsets":[{"addresses":[{"ip":"1","targetRef":{"name":"p","uid":"u","resourceVersion":"1"}}],
			  "notReadyAddresses":[{"targetRef":{"name":"q","uid":"u"}}]}]}`,
			`{"subsets":[{"addresses":[{"ip":"1","targetRef":{"name":"p"}}],"notReadyAddresses":[{"targetRef":{"name":"q"}}]}]}`},
		"endpoint slice": {"endpointslices.discovery.k8s.io", `{"endpoints":[{"targetRef":{"name":"p","uid":"u"}}]}`, `{"endpoints":[{"targetRef":{"name":"p"}}]}`},
		"event":          {"events", `{"involvedObject":{"name":"p","uid":"u"},"related":{"name":"q","uid":"u"}}`, `{"involvedObject":{"name":"p"},"related":{"name":"q"}}`},
		"webhooks": {"validatingwebhookconfigurations.admissionregistration.k8s.io",
			`{"apiVersion":"admissionregistration.k8s.io/v1","webhooks":[{"sideEffects":"Unknown"},{"sideEffects":"NoneOnDryRun"}]}`,
			`{"apiVersion":"admissionregistration.k8s.io/v1","webhooks":[{"sideEffects":"None"},{"sideEffects":"NoneOnDryRun"}]}`},
		"location": {"backupstoragelocations.velero.io",
			`{"metadata":{"annotations":{"holdfast.io/default-accepted":"x","holdfast.io/default-withdrawn":"y","kept":"z"}},"spec":{"default":true,"provider":"aws"}}`,
			`{"metadata":{"annotations":{"kept":"z"}},"spec":{"provider":"aws"}}`},
		"definition": {"customresourcedefinitions.apiextensions.k8s.io",
			`{"apiVersion":"apiextensions.k8s.io/v1","spec":{"preserveUnknownFields":true,"versions":[{"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
			`{"apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := decodeObject(t, tt.in)
			apply.NormalizeObject(obj, schema.ParseGroupResource(tt.resource), resetOptions())
			got, err := json.Marshal(obj)
			require.NoError(t, err)
			require.JSONEq(t, tt.want, string(got))
		})
	}
}

func accountMount(volume string) string {
	return `{"name":"` + volume + `","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}`
}

// projectedToken is a volume as the ServiceAccount admission makes it, with further sources.
func projectedToken(name, more string) string {
	return `{"name":"` + name + `","projected":{"sources":[{"serviceAccountToken":{"path":"token","expirationSeconds":3607}},
	  {"configMap":{"name":"kube-root-ca.crt"}},{"downwardAPI":{"items":[{"path":"namespace"}]}}` + more + `]}}`
}

// Volumes of the user's own disappeared because of their names.
func TestATokenVolumeOfOnesOwnIsKept(t *testing.T) {
	secret := func(volume, secret string) string {
		return `{"name":"` + volume + `","secret":{"secretName":"` + secret + `"}}`
	}
	for name, tt := range map[string]struct{ spec, volume, mount string }{
		"elsewhere":              {"", secret("sa-token-x2x4z", "sa-token-x2x4z"), `{"name":"sa-token-x2x4z","readOnly":true,"mountPath":"/etc/token"}`},
		"also elsewhere":         {"", secret("sa-token-x2x4z", "sa-token-x2x4z"), accountMount("sa-token-x2x4z") + `,{"name":"sa-token-x2x4z","mountPath":"/t"}`},
		"writable":               {"", secret("sa-token-x2x4z", "sa-token-x2x4z"), strings.Replace(accountMount("sa-token-x2x4z"), "true", "false", 1)},
		"another Secret":         {"", secret("sa-token-x2x4z", "payment"), accountMount("sa-token-x2x4z")},
		"a chosen name":          {"", secret("sa-token-static", "sa-token-static"), accountMount("sa-token-static")},
		"another account's":      {"", secret("robot-token-x2x4z", "robot-token-x2x4z"), accountMount("robot-token-x2x4z")},
		"some of its keys":       {"", `{"name":"sa-token-x2x4z","secret":{"secretName":"sa-token-x2x4z","items":[]}}`, accountMount("sa-token-x2x4z")},
		"no automount":           {`"automountServiceAccountToken":false,`, projectedToken("kube-api-access-x2x4z", ""), accountMount("kube-api-access-x2x4z")},
		"another projected":      {"", projectedToken("vault", ""), accountMount("vault")},
		"more than the token":    {"", projectedToken("kube-api-access-x2x4z", `,{"secret":{"name":"s"}}`), accountMount("kube-api-access-x2x4z")},
		"of another audience":    {"", strings.Replace(projectedToken("kube-api-access-x2x4z", ""), `"path"`, `"audience":"vault","path"`, 1), accountMount("kube-api-access-x2x4z")},
		"a ConfigMap":            {"", `{"name":"kube-api-access-x2x4z","configMap":{}}`, accountMount("kube-api-access-x2x4z")},
		"projected, not mounted": {"", projectedToken("kube-api-access-x2x4z", ""), `{"name":"other","mountPath":"/o"}`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := `{"spec":{` + tt.spec + `"serviceAccountName":"sa","volumes":[` + tt.volume + `],"containers":[{"volumeMounts":[` + tt.mount + `]}]}}`
			obj := decodeObject(t, pod)
			apply.NormalizeObject(obj, schema.GroupResource{Resource: "pods"}, resetOptions())
			got, err := json.Marshal(obj)
			require.NoError(t, err)
			require.JSONEq(t, pod, string(got))
		})
	}
}

func TestObject(t *testing.T) {
	obj := decodeObject(t, `{"apiVersion":"v1","kind":"ConfigMap","data":{"n":"1"},"status":{"x":1},"metadata":{"name":"m","namespace":"old",
	  "generateName":"g","selfLink":"s","uid":"u","resourceVersion":"1","generation":2,"creationTimestamp":"t","deletionTimestamp":"t",
	  "deletionGracePeriodSeconds":1,"ownerReferences":[{}],"managedFields":[{}],"finalizers":["f"],"annotations":{"a":"1"},
	  "labels":{"velero.io/backup-name":"older"}}}`)
	resetObject(obj, schema.GroupResource{Resource: "configmaps"}, "new", resetOptions())
	got, err := json.Marshal(obj)
	require.NoError(t, err)
	require.JSONEq(t, `{"apiVersion":"v1","kind":"ConfigMap","data":{"n":"1"},"metadata":{"name":"m","namespace":"new","finalizers":["f"],
	  "annotations":{"a":"1"},"labels":{"velero.io/backup-name":"b","velero.io/restore-name":"`+strings.Repeat("r", 57)+`6abc5b"}}}`,
		strings.Replace(string(got), obj["metadata"].(map[string]any)["labels"].(map[string]any)["velero.io/restore-name"].(string)[57:], "6abc5b", 1))
	require.Len(t, obj["metadata"].(map[string]any)["labels"].(map[string]any)["velero.io/restore-name"], 63)
}

func TestNamespace(t *testing.T) {
	obj := decodeObject(t, `{"metadata":{"name":"old","uid":"u","labels":{"kubernetes.io/metadata.name":"old","x":"1"}},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}}`)
	apply.ResetNamespace(obj, "new")
	got, err := json.Marshal(obj)
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"name":"new","labels":{"x":"1"}},"spec":{"finalizers":["kubernetes"]}}`, string(got))
}

func TestSkipped(t *testing.T) {
	tests := map[string]struct {
		resource, in string
		skip, report bool
	}{
		"running pod":    {"pods", `{"status":{"phase":"Running"}}`, false, false},
		"ended pod":      {"pods", `{"status":{"phase":"Succeeded"}}`, true, false},
		"failed pod":     {"pods", `{"status":{"phase":"Failed"}}`, true, false},
		"mirror pod":     {"pods", `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}}}`, true, false},
		"open job":       {"jobs.batch", `{"status":{"active":1}}`, false, false},
		"ended job":      {"jobs.batch", `{"status":{"completionTime":"t"}}`, true, false},
		"failed job":     {"jobs.batch", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}}`, true, false},
		"failing job":    {"jobs.batch", `{"status":{"active":1,"conditions":[{"type":"FailureTarget","status":"True"}]}}`, true, false},
		"succeeding job": {"jobs.batch", `{"status":{"active":1,"conditions":[{"type":"SuccessCriteriaMet","status":"True"}]}}`, true, false},
		"completed job":  {"jobs.batch", `{"status":{"conditions":[{"type":"Complete","status":"True"}]}}`, true, false},
		"suspended job":  {"jobs.batch", `{"status":{"conditions":[{"type":"Suspended","status":"True"},{"type":"Failed","status":"False"}]}}`, false, false},
		"deleted pod":    {"pods", `{"metadata":{"deletionTimestamp":"t"},"status":{"phase":"Running"}}`, true, false},
		"pod that ran": {"pods", `{"spec":{"restartPolicy":"Never"},"status":{"phase":"Running","containerStatuses":[{"state":{"terminated":{"exitCode":1}}}]}}`,
			true, false},
		"pod that ran well": {"pods", `{"spec":{"restartPolicy":"OnFailure"},"status":{"phase":"Running","containerStatuses":[{"state":{"terminated":{"exitCode":0}}}]}}`,
			true, false},
		"pod that tries again": {"pods", `{"spec":{"restartPolicy":"OnFailure"},"status":{"containerStatuses":[{"state":{"terminated":{"exitCode":1}}}]}}`, false, false},
		"pod that starts again": {"pods", `{"spec":{"restartPolicy":"Always"},"status":{"containerStatuses":[{"state":{"terminated":{"exitCode":0}}}]}}`,
			false, false},
		"pod that runs on": {"pods", `{"spec":{"restartPolicy":"Never"},"status":{"containerStatuses":[{"state":{"terminated":{}}},{"state":{"running":{}}}]}}`,
			false, false},
		"pod that waits":  {"pods", `{"spec":{"restartPolicy":"Never"}}`, false, false},
		"own API service": {"apiservices.apiregistration.k8s.io", `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":"onstart"}}}`, true, false},
		"API service":     {"apiservices.apiregistration.k8s.io", `{"metadata":{}}`, false, false},
		"endpoint slice": {"endpointslices.discovery.k8s.io", `{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}}}`,
			true, false},
		"own endpoint slice": {"endpointslices.discovery.k8s.io", `{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"me"}}}`, false, false},
		"moved snapshot":     {"datauploads.velero.io", `{}`, true, false},
		"filled claim":       {"datadownloads.velero.io", `{}`, true, false},
		"allocated address": {"ipaddresses.networking.k8s.io", `{"metadata":{"labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}}}`,
			true, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := apply.FindSkip(decodeObject(t, tt.in), schema.ParseGroupResource(tt.resource))
			require.Equal(t, tt.skip, got != nil)
			if got != nil {
				require.Equal(t, tt.report, got.Report)
				require.NotEmpty(t, got.Reason)
			}
		})
	}
}

func TestUnsupported(t *testing.T) {
	pod := decodeObject(t, `{"metadata":{"annotations":{"post.hook.restore.velero.io/command":"x","init.hook.restore.velero.io/command":"y"}}}`)
	require.Empty(t, apply.FindUnsupported(pod))
	status := decodeObject(t, `{"metadata":{"annotations":{"velero.io/restore-status":"true"}}}`)
	require.Equal(t, "velero.io/restore-status", apply.FindUnsupported(status))
	status = decodeObject(t, `{"metadata":{"annotations":{"velero.io/restore-status":"True"}}}`) // as Velero compares it
	require.Equal(t, "velero.io/restore-status", apply.FindUnsupported(status))
}

// FuzzNormalize feeds objects of any shape to the reset of every kind.
func FuzzNormalize(f *testing.F) {
	kinds := []string{"pods", "jobs.batch", "services", "serviceaccounts", "secrets", "persistentvolumes", "persistentvolumeclaims",
		"rolebindings.rbac.authorization.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
		"customresourcedefinitions.apiextensions.k8s.io", "ipaddresses.networking.k8s.io", "apiservices.apiregistration.k8s.io"}
	for _, seed := range []string{`{}`, `{"metadata":[],"spec":1,"status":"x"}`, `{"spec":{"ports":[1,null,{"port":"x"}],"volumes":{},"containers":[[]]}}`,
		`{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"f:ports":{"k:{":{"f:nodePort":1}}}}}],"labels":null,"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{"}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range kinds {
			var obj map[string]any
			if utiljson.Unmarshal(data, &obj) != nil || obj == nil {
				return
			}
			gr := schema.ParseGroupResource(kind)
			apply.FindSkip(obj, gr)
			apply.FindUnsupported(obj)
			resetObject(obj, gr, "ns", resetOptions())
			meta, ok := obj["metadata"].(map[string]any)
			require.True(t, ok)
			require.Nil(t, meta["uid"])
			require.Nil(t, meta["ownerReferences"])
		}
	})
}

func TestServicePorts(t *testing.T) {
	const asked = `"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{\"ports\":[{\"nodePort\":30001}]}}"}}`
	for name, tt := range map[string]struct {
		service      string
		kept, chosen bool
	}{
		"no node port":   {`{"spec":{"ports":[{"port":80}]}}`, false, false},
		"chosen":         {`{"spec":{"ports":[{"port":80,"nodePort":30001}]}}`, false, true},
		"asked for":      {`{` + asked + `,"spec":{"ports":[{"port":80,"nodePort":30001}]}}`, true, false},
		"both":           {`{` + asked + `,"spec":{"ports":[{"port":80,"nodePort":30001},{"port":81,"nodePort":30002}]}}`, true, true},
		"health check":   {`{"spec":{"healthCheckNodePort":30003,"ports":[{"port":80}]}}`, false, true},
		"only its field": {`{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"f:healthCheckNodePort":{}}}}]},"spec":{"healthCheckNodePort":30003}}`, true, false},
		"no object":      {`"nodePort"`, false, false},
	} {
		kept, chosen := apply.ServicePorts([]byte(tt.service))
		require.Equal(t, []bool{tt.kept, tt.chosen}, []bool{kept, chosen}, name)
	}
}
