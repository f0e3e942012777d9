package restore_test

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

const injectorPath = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/inject"

func injectorWebhook() object {
	return object{"webhooks": []any{object{"name": "sidecar.example.com",
		"namespaceSelector": object{"matchLabels": object{"inject": "yes"}}, "objectSelector": object{"matchExpressions": []any{object{"key": "plain", "operator": "DoesNotExist"}}},
		"rules": []any{object{"operations": []any{"CREATE"}, "apiGroups": []any{""}, "apiVersions": []any{"v1"}, "resources": []any{"pods"}}}}}}
}

// A mesh whose webhook is restored after the workloads let their Pods start without its sidecar,
// without a message that names them.
func TestWorkloadsBeforeTheirInjectingWebhookAreNamed(t *testing.T) {
	for name, there := range map[string]bool{"the webhook is restored": false, "the webhook was there": true} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			s.Serve("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false)
			b.addObject("mutatingwebhookconfigurations.admissionregistration.k8s.io", "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", "inject", injectorWebhook())
			template := func(labels object) object {
				return object{"spec": object{"template": object{"metadata": object{"labels": labels}}}}
			}
			for namespace, labels := range map[string]object{"mesh": {"inject": "yes"}, "other": {}} {
				b.addObject("namespaces", "v1", "Namespace", "", namespace, object{"metadata": object{"labels": labels}})
				b.addObject("deployments.apps", "apps/v1", "Deployment", namespace, "d", template(object{"app": "d"}))
				b.addObject("deployments.apps", "apps/v1", "Deployment", namespace, "plain", template(object{"plain": ""}))
				b.addObject("pods", "v1", "Pod", namespace, "bare", nil)
				b.addObject("pods", "v1", "Pod", namespace, "of-d", nil, ownerBy("apps/v1", "ReplicaSet", "rs", true))
				b.addObject("configmaps", "v1", "ConfigMap", namespace, "c", nil)
			}
			if there {
				live := injectorWebhook()
				live["apiVersion"], live["kind"], live["metadata"] = "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", object{"name": "inject"}
				s.Put(injectorPath, live)
			}
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			if there {
				require.Empty(t, f.results.Warnings.allMessages())
				return
			}
			got := strings.Split(f.results.Warnings.allMessages(), "\n")
			slices.Sort(got)
			const hook = `mutating webhook "sidecar.example.com" of "inject" comes after it, and would have changed `
			require.Len(t, got, 2, got)
			require.Contains(t, got[0], "deployments.apps mesh/d: "+hook+"its Pods")
			require.Contains(t, got[1], "pods mesh/bare: "+hook+"it:")
		})
	}
}

// A configuration of a million empty webhooks is three megabytes in the backup and took hundreds in
// memory, for the whole restore.
func TestAConfigurationOfManyWebhooksIsNotKept(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	const gr = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
	s.Serve("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false)
	hooks := make([]any, 1<<20)
	for i := range hooks {
		hooks[i] = object{}
	}
	b.addObject(gr, "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", "hostile", object{"webhooks": hooks})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	var held uint64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if isCreate(r, "configmaps") {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			held = m.HeapAlloc
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Contains(t, f.results.Errors.allMessages(), "hostile: decode: too many values")
	require.Less(t, held, uint64(64<<20))
}
