package restore_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// Objects whose version is not served any more are restored in the one that is, where nothing is lost by it.
func TestVersionsThatAreNotServedAnyMore(t *testing.T) {
	const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.v.org"
	for name, tt := range map[string]struct{ resource, kind, from, to, strategy, failure string }{
		"custom":                     {"things.v.org", "Thing", "v.org/v1beta1", "v.org/v1", "None", ""},
		"custom with a converter":    {"things.v.org", "Thing", "v.org/v1beta1", "v.org/v1", "Webhook", "does not serve the version v1beta1 of things.v.org, in which it is stored, only v1"},
		"aggregated":                 {"things.v.org", "Thing", "v.org/v1beta1", "v.org/v1", "", "nothing is known that converts it"},
		"built in":                   {"cronjobs.batch", "CronJob", "batch/v1beta1", "batch/v1", "", ""},
		"built in with another form": {"horizontalpodautoscalers.autoscaling", "HorizontalPodAutoscaler", "autoscaling/v2beta1", "autoscaling/v2", "", "the two differ"},
		"budget without Pods":        {"poddisruptionbudgets.policy", "PodDisruptionBudget", "policy/v1beta1", "policy/v1", "", "its empty selector means all Pods"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			plural, _, _ := strings.Cut(tt.resource, ".")
			s.Serve(tt.to, plural, tt.kind, true)
			s.Serve("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", false)
			if tt.strategy != "" {
				s.Put(definition, object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
					"metadata": object{"name": "things.v.org"}, "spec": object{"conversion": object{"strategy": tt.strategy}}})
			}
			for _, item := range []string{"one", "two"} {
				b.addObject(tt.resource, tt.from, tt.kind, "a", item, object{"spec": object{"selector": object{}, "size": 3.0, "list": []any{object{"kept": "x", "old": "y"}}}})
			}
			var refused atomic.Bool
			s.SetFailureText(http.StatusBadRequest, `strict decoding error: unknown field "spec.list[0].old", unknown field "spec.none"`)
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, plural) && refused.CompareAndSwap(false, true) {
					assert.Equal(t, "Strict", r.URL.Query().Get("fieldValidation"))
					return http.StatusBadRequest, false
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			if tt.failure != "" {
				require.Contains(t, f.results.Errors.allMessages(), tt.failure)
				require.Equal(t, 2, f.recorder.ByAction()["failed"])
				return
			}
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, 1, strings.Count(f.results.Warnings.allMessages(), "left out, since "+tt.to+" does not have it: spec.list[0].old"))
			made := s.Object("/apis/" + tt.to + "/namespaces/a/" + plural + "/one")
			require.Equal(t, tt.to, made["apiVersion"])
			require.NotNil(t, s.Object("/apis/"+tt.to+"/namespaces/a/"+plural+"/two"))
		})
	}
}
