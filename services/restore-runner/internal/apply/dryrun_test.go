package apply_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// With dryRun=All the API server refuses Pods that lack what the restore creates before them.
func TestADryRunCreatesPodsAfterWhatTheyNeed(t *testing.T) {
	for refusal, needed := range map[string]apply.Target{
		`error looking up service account a/n: serviceaccount "n" not found`: {GVR: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Namespace: "a", Name: "n"},
		"no PriorityClass with name n was found":                             {GVR: schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}, Name: "n"},
		`pod rejected: RuntimeClass "n" not found`:                           {GVR: schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}, Name: "n"},
	} {
		s, c, _ := startServer(t)
		c = c.ForDryRun(&apply.DryRun{Server: true})
		s.SetFailureText(http.StatusForbidden, refusal)
		s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
			if r.Method == http.MethodPost && body["kind"] == "Pod" {
				return http.StatusForbidden, false
			}
			return 0, false
		})
		require.ErrorContains(t, c.Apply(t.Context(), storedRequest("pods", "Pod", nil)).Err, refusal, "nothing creates it")
		require.Len(t, s.Requests("POST "), 1, "a dry run waits for nothing")
		kind := map[string]string{"serviceaccounts": "ServiceAccount", "priorityclasses": "PriorityClass", "runtimeclasses": "RuntimeClass"}[needed.GVR.Resource]
		need := apply.Request{Target: needed, Kind: kind, Object: object{"apiVersion": needed.GVR.GroupVersion().String(), "kind": kind, "metadata": object{"name": "n"}}}
		require.Equal(t, apply.Created, c.Apply(t.Context(), need).Action)
		got := c.Apply(t.Context(), storedRequest("pods", "Pod", nil))
		require.NoError(t, got.Err)
		require.Equal(t, apply.Created, got.Action)
	}
}
