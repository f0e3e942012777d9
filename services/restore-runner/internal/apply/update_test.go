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
