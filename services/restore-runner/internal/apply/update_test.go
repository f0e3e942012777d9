package apply_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

const podPath = "/api/v1/namespaces/a/pods/m"

// podFields are a Pod as admission and kubelet leave it: with a token volume that is called suffix.
func podFields(image, suffix string) object {
	token := "kube-api-access-" + suffix
	return object{
		"spec": object{
			"nodeName": "n" + suffix,
			"volumes":  []any{object{"name": token, "projected": object{"sources": []any{object{"serviceAccountToken": object{"path": "token"}}}}}, object{"name": "data", "emptyDir": object{}}},
			"containers": []any{object{"name": "c", "image": image, "volumeMounts": []any{
				object{"name": "data", "mountPath": "/data"},
				object{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
			}}},
		},
		"status": object{"phase": "Running"},
	}
}

func putObject(s *kubetest.Server, path, kind string, fields object) object {
	live := object{"apiVersion": "v1", "kind": kind, "metadata": object{"name": "m", "namespace": "a"}}
	for key, value := range fields {
		live[key] = value
	}
	s.Put(path, live)
	return live
}

// keepPatches refuses the first n patches, and returns those that came.
func keepPatches(s *kubetest.Server, n int, causes ...metav1.StatusCause) *[]object {
	var patches []object
	s.SetFailureCauses(http.StatusUnprocessableEntity, causes...)
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method != http.MethodPatch {
			return 0, false
		}
		if patches = append(patches, body); len(patches) <= n {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	return &patches
}

// The patch took the mount of the token out of the container, so that the API server refused it, and the
// image was not put back.
func TestAnUpdateLeavesWhatAdmissionAdds(t *testing.T) {
	s, c, _ := startServer(t)
	live := putObject(s, podPath, "Pod", podFields("busybox:2", "22222"))
	patches := keepPatches(s, 0)
	request := storedRequest("pods", "Pod", podFields("busybox:1", "44444"))
	request.Update = true
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Equal(t, apply.Updated, got.Action, got.Warning)
	require.Empty(t, got.Warning)
	spec := (*patches)[0]["spec"].(object)
	require.Len(t, spec, 1, "containers alone: %v", spec)
	want := live["spec"].(object)
	want["containers"].([]any)[0].(object)["image"] = "busybox:1"
	require.Equal(t, want, s.Object(podPath)["spec"])
	require.Equal(t, object{"phase": "Running"}, s.Object(podPath)["status"])
}

func TestAnUpdateKeepsNodePortsThatTheServerChose(t *testing.T) {
	s, c, _ := startServer(t)
	port := func(number int, more ...any) object {
		out := object{"name": "http", "port": number, "protocol": "TCP"}
		for _, nodePort := range more {
			out["nodePort"] = nodePort
		}
		return out
	}
	putObject(s, servicePath, "Service", object{"spec": object{"clusterIP": "10.0.0.7", "ports": []any{port(81, 30007), object{"name": "extra", "port": 90, "nodePort": 30008}}}})
	request := storedRequest("services", "Service", object{"spec": object{"clusterIP": "10.0.0.1", "ports": []any{port(80, 30001)}}})
	request.Update = true
	require.Equal(t, apply.Updated, c.Apply(t.Context(), request).Action)
	spec := s.Object(servicePath)["spec"].(object)
	require.Equal(t, "10.0.0.7", spec["clusterIP"])
	require.Equal(t, []any{object{"name": "http", "port": 80.0, "protocol": "TCP", "nodePort": 30007.0}}, spec["ports"], "what only the live one has goes")
}

func TestAMergedAccountKeepsItsTokens(t *testing.T) {
	s, c, _ := startServer(t)
	live := putObject(s, accountPath, "ServiceAccount", object{"secrets": []any{object{"name": "m-token-22222"}, object{"name": "pull"}}})
	kubetest.Meta(live)["managedFields"] = []any{object{"manager": "kube-controller-manager", "operation": "Update",
		"fieldsV1": object{"f:secrets": object{`k:{"name":"m-token-22222"}`: object{}}}}}
	s.Put(accountPath, live)
	request := storedRequest("serviceaccounts", "ServiceAccount", object{"secrets": []any{object{"name": "stored"}}})
	require.Equal(t, apply.Updated, c.Apply(t.Context(), request).Action)
	require.ElementsMatch(t, []any{object{"name": "m-token-22222"}, object{"name": "pull"}, object{"name": "stored"}}, s.Object(accountPath)["secrets"])
}

// What is immutable kept everything else of the object from its state in the backup.
func TestAnUpdateGoesWithoutWhatIsImmutable(t *testing.T) {
	pod := func(image, node string) object {
		return object{"spec": object{"nodeSelector": object{"node": node},
			"containers": []any{object{"name": "c", "image": image, "command": []any{node}}, object{"name": "side", "image": "same"}}}}
	}
	for name, tt := range map[string]struct {
		resource, kind     string
		live, stored, want object
		causes             []metav1.StatusCause
		refused            int
	}{
		"one field": {resource: "configmaps", kind: "ConfigMap", refused: 1,
			causes: []metav1.StatusCause{{Field: "data", Message: "Forbidden: field is immutable"}},
			live:   object{"data": object{"k": "w"}, "immutable": true}, stored: object{"data": object{"k": "v"}, "binaryData": object{"b": "eA=="}, "immutable": true},
			want: object{"data": object{"k": "w"}, "binaryData": object{"b": "eA=="}, "immutable": true}},
		"a field that only the backup has": {resource: "services", kind: "Service", refused: 1,
			causes: []metav1.StatusCause{{Field: "spec.ipFamilies[0]", Message: "may not change"}},
			live:   object{"spec": object{"type": "NodePort"}}, stored: object{"spec": object{"type": "ClusterIP", "ipFamilies": []any{"IPv6"}}},
			want: object{"spec": object{"type": "ClusterIP"}}},
		"what is mutable of a spec": {resource: "pods", kind: "Pod", refused: 1,
			causes: []metav1.StatusCause{{Field: "spec", Message: "Forbidden: pod updates may not change fields other than images\n core.PodSpec{}"}},
			live:   pod("busybox:2", "live"), stored: pod("busybox:1", "stored"),
			want: object{"spec": object{"nodeSelector": object{"node": "live"},
				"containers": []any{object{"name": "c", "image": "busybox:1", "command": []any{"live"}}, object{"name": "side", "image": "same"}}}}},
		"what is mutable beside a container that was added": {resource: "pods", kind: "Pod", refused: 1,
			causes: []metav1.StatusCause{{Field: "spec.containers", Message: "Forbidden: pod updates may not add or remove containers"}},
			live:   object{"spec": object{"containers": []any{object{"name": "c", "image": "2"}, object{"name": "proxy", "image": "p"}}}},
			stored: object{"spec": object{"containers": []any{object{"name": "c", "image": "1"}}}},
			want:   object{"spec": object{"containers": []any{object{"name": "c", "image": "1"}, object{"name": "proxy", "image": "p"}}}}},
		"a spec, once nothing of it is mutable": {resource: "persistentvolumeclaims", kind: "PersistentVolumeClaim", refused: 2,
			causes: []metav1.StatusCause{{Field: "spec", Message: "Forbidden"}},
			live:   object{"spec": object{"volumeName": "live", "resources": object{"requests": object{"storage": "2Gi"}}}, "metadata": object{"name": "m", "annotations": object{"a": "live"}}},
			stored: object{"spec": object{"volumeName": "stored", "resources": object{"requests": object{"storage": "1Gi"}}}},
			want:   object{"spec": object{"volumeName": "live", "resources": object{"requests": object{"storage": "2Gi"}}}}},
		"a name that is no field": {resource: "configmaps", kind: "ConfigMap", refused: 1,
			causes: []metav1.StatusCause{{Field: "data.source", Message: "Forbidden"}},
			live:   object{"data": object{"k": "w"}}, stored: object{"data": object{"k": "v"}, "immutable": true},
			want: object{"data": object{"k": "w"}, "immutable": true}},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			path := "/api/v1/namespaces/a/" + tt.resource + "/m"
			putObject(s, path, tt.kind, tt.live)
			patches := keepPatches(s, tt.refused, tt.causes...)
			request := storedRequest(tt.resource, tt.kind, tt.stored)
			request.Update = true
			got := c.Apply(t.Context(), request)
			require.NoError(t, got.Err)
			require.Equal(t, apply.Failed, got.Action, got.Warning)
			require.Len(t, *patches, tt.refused+1)
			want := `could not restore, ` + tt.kind + ` "m" could not be updated in what the API server refuses to change: ` + tt.causes[0].Field + ": "
			require.Contains(t, got.Warning, want)
			require.NotContains(t, got.Warning, "\n")
			for key, value := range tt.want {
				require.Equal(t, value, s.Object(path)[key], key)
			}
			require.Equal(t, "r", kubetest.Meta(s.Object(path))["labels"].(object)["velero.io/restore-name"])
		})
	}
}

func TestAnUpdateOfNothingButImmutableFieldsLabels(t *testing.T) {
	s, c, _ := startServer(t)
	putObject(s, mapPath, "ConfigMap", object{"data": object{"k": "w"}, "immutable": true})
	patches := keepPatches(s, 1, metav1.StatusCause{Field: "data", Message: "Forbidden"})
	request := storedRequest("configmaps", "ConfigMap", object{"data": object{"k": "v"}, "immutable": true})
	request.Update = true
	got := c.Apply(t.Context(), request)
	require.Equal(t, apply.Failed, got.Action)
	require.Equal(t, `could not restore, ConfigMap "m" could not be updated in what the API server refuses to change: data: Forbidden`, got.Warning)
	require.Len(t, *patches, 2)
	require.Equal(t, "r", kubetest.Meta(s.Object(mapPath))["labels"].(object)["velero.io/restore-name"])
}

// An injector gave the live Pod another version of its sidecar, and the update put the stored one back.
func TestAnUpdateOfAPodLeavesItsInjectedSidecar(t *testing.T) {
	pod := func(image string) object {
		return object{"spec": object{"containers": []any{object{"name": "app", "image": image}, object{"name": "istio-proxy", "image": "proxy:" + image}}}}
	}
	s, c, _ := startServer(t)
	putObject(s, podPath, "Pod", pod("2"))
	request := storedRequest("pods", "Pod", pod("1"))
	request.Update, request.Injections = true, apply.BuiltinInjections
	require.Equal(t, apply.Updated, c.Apply(t.Context(), request).Action)
	require.Equal(t, []any{object{"name": "app", "image": "1"}, object{"name": "istio-proxy", "image": "proxy:2"}}, s.Object(podPath)["spec"].(object)["containers"])
}

// What an earlier restore had a Pod wait with is no difference: the API server would refuse to remove it.
func TestAnUpdateOfARestoredPodLeavesWhatItWaitedWith(t *testing.T) {
	s, c, _ := startServer(t)
	live := object{"spec": object{"containers": []any{object{"name": "app", "image": "1"}}, "initContainers": []any{object{"name": "restore-wait"}, object{"name": "schema"}},
		"volumes": []any{object{"name": "data"}, object{"name": "restore-wait"}}}}
	putObject(s, podPath, "Pod", live)
	request := storedRequest("pods", "Pod", object{"spec": object{"containers": []any{object{"name": "app", "image": "1"}}, "initContainers": []any{object{"name": "schema"}},
		"volumes": []any{object{"name": "data"}}}})
	request.Injections = apply.BuiltinInjections
	got := c.Apply(t.Context(), request)
	require.NoError(t, got.Err)
	require.Empty(t, got.Warning)
	require.Empty(t, got.Fields)
}

// An action adds a container without the fields that the API server fills in: each later restore found the Pod changed.
func TestFieldsThatTheServerAddsAreNoDifference(t *testing.T) {
	pod := func(fields ...object) object {
		var containers []any
		for i, container := range fields {
			container["name"] = string(rune('a' + i))
			containers = append(containers, container)
		}
		return object{"spec": object{"initContainers": containers}}
	}
	for name, tt := range map[string]struct {
		live, stored object
		want         apply.Action
		asked        int
	}{
		"defaults":              {pod(object{"imagePullPolicy": "Always"}, object{"image": "x"}), pod(object{}, object{"image": "x"}), apply.Skipped, 1},
		"no default":            {pod(object{"imagePullPolicy": "Never"}), pod(object{}), apply.Failed, 1},
		"the stored has a part": {pod(object{"imagePullPolicy": "Always"}), pod(object{"image": "x"}), apply.Failed, 0},
		"another value":         {pod(object{"imagePullPolicy": "Always", "image": "y"}), pod(object{"image": "x"}), apply.Failed, 0},
		"another label": {object{"metadata": object{"name": "m", "namespace": "a", "labels": object{"x": "y"}}, "spec": pod(object{"imagePullPolicy": "Always"})["spec"]},
			pod(object{}), apply.Failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			s.Default = func(o map[string]any) {
				containers, _ := o["spec"].(object)["initContainers"].([]any)
				for _, container := range containers {
					if container := container.(object); container["image"] == nil && container["imagePullPolicy"] == nil {
						container["imagePullPolicy"] = "Always"
					}
				}
			}
			putObject(s, podPath, "Pod", tt.live)
			before := s.Object(podPath)
			got := c.Apply(t.Context(), storedRequest("pods", "Pod", tt.stored))
			require.NoError(t, got.Err)
			require.Equal(t, tt.want, got.Action, got.Warning)
			require.Equal(t, before, s.Object(podPath))
			require.Len(t, s.Requests("PATCH "), tt.asked)
			request := storedRequest("pods", "Pod", tt.stored)
			request.Update = true
			require.Equal(t, tt.want == apply.Skipped, c.Apply(t.Context(), request).Action == apply.Skipped)
		})
	}
}

// That the account of a new namespace mounts no token was lost, and nothing said so.
func TestWhetherAnAccountMountsItsToken(t *testing.T) {
	const field = "automountServiceAccountToken"
	for name, tt := range map[string]struct {
		account      string
		live, stored object
		update       bool
		taken        bool
		want         apply.Action
		mounts       any
		warns        bool
	}{
		"as the controller made it": {account: "default", stored: object{field: false}, want: apply.Updated, mounts: false},
		"with a label": {account: "default", live: object{"metadata": object{"name": "default", "namespace": "a", "labels": object{"k": "v"}}}, stored: object{field: false},
			want: apply.Skipped, warns: true},
		"with its pull secret":         {account: "default", live: object{"imagePullSecrets": []any{object{"name": "x"}}}, stored: object{field: false}, want: apply.Skipped, warns: true},
		"set since":                    {account: "default", live: object{field: true}, stored: object{field: false}, want: apply.Skipped, mounts: true, warns: true},
		"set since, and more to merge": {account: "default", live: object{field: true}, stored: object{field: false, "imagePullSecrets": []any{object{"name": "x"}}}, want: apply.Updated, mounts: true, warns: true},
		"unset since, not stored":      {account: "default", live: object{field: true}, want: apply.Skipped, mounts: true, warns: true},
		"another account":              {account: "m", stored: object{field: false}, want: apply.Skipped, warns: true},
		"policy update":                {account: "m", live: object{field: true}, stored: object{field: false}, update: true, want: apply.Updated, mounts: false},
		"policy update, not stored":    {account: "m", live: object{field: true}, update: true, want: apply.Updated},
		"of another namespace":         {account: "m", live: object{field: true}, stored: object{field: false}, update: true, taken: true, want: apply.Skipped, mounts: true, warns: true},
		"the same":                     {account: "m", live: object{field: false}, stored: object{field: false}, want: apply.Skipped, mounts: false},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, _ := startServer(t)
			path := "/api/v1/namespaces/a/serviceaccounts/" + tt.account
			live := object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": tt.account, "namespace": "a"}}
			for key, value := range tt.live {
				live[key] = value
			}
			s.Put(path, live)
			request := storedRequest("serviceaccounts", "ServiceAccount", tt.stored)
			request.Name, kubetest.Meta(request.Object)["name"] = tt.account, tt.account
			request.Update, request.Taken = tt.update, tt.taken
			got := c.Apply(t.Context(), request)
			require.NoError(t, got.Err)
			require.Equal(t, tt.want, got.Action, got.Warning)
			require.Equal(t, tt.mounts, s.Object(path)[field])
			if tt.warns {
				require.Contains(t, got.Warning, `ServiceAccount "`+tt.account+`" exists already and differs from the backup in `+field)
			} else {
				require.Empty(t, got.Warning)
			}
		})
	}
}
