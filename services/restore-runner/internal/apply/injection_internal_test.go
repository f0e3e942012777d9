package apply

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

type quietObserver struct{}

func (quietObserver) Observe(time.Duration, bool) {}

func encoded(t *testing.T, o object) []byte {
	t.Helper()
	out, err := json.Marshal(o)
	require.NoError(t, err)
	return out
}

var podsV1 = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

const injectedPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"m","namespace":"a"},"spec":{
	"containers":[{"name":"app","volumeMounts":[{"name":"data","mountPath":"/data"},{"name":"vault-env","mountPath":"/vault/"}]},{"name":"istio-proxy"}],
	"initContainers":[{"name":"copy-vault-env"}],"volumes":[{"name":"data"},{"name":"vault-env"}]}}`

// Only what the refusal and a rule both name goes.
func TestWhatAdmissionAddsTwiceIsLeftOut(t *testing.T) {
	spec := field.NewPath("spec")
	refusal := invalidError(
		field.Duplicate(spec.Child("volumes").Index(3).Child("name"), "vault-env"), field.Duplicate(spec.Child("volumes").Index(4).Child("name"), "data"),
		field.Invalid(spec.Child("containers").Index(0).Child("volumeMounts").Index(3).Child("mountPath"), "/vault/", "must be unique"),
		field.Invalid(spec.Child("containers").Index(0).Child("volumeMounts").Index(4).Child("mountPath"), "/data", "must be unique"),
		field.Duplicate(spec.Child("initContainers").Index(1).Child("name"), "istio-proxy"), field.Duplicate(spec.Child("containers").Index(2).Child("name"), "app"))
	r := refusedRequest(t, podsV1, injectedPod)
	r.Injections = BuiltinInjections
	body, ok := r.answerRefusal(refusal)
	require.True(t, ok)
	require.JSONEq(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"m","namespace":"a"},"spec":{
		"containers":[{"name":"app","volumeMounts":[{"name":"data","mountPath":"/data"}]}],"initContainers":[{"name":"copy-vault-env"}],"volumes":[{"name":"data"}]}}`, string(body))
	_, ok = r.answerRefusal(refusal)
	require.False(t, ok, "there is one retry")

	r = refusedRequest(t, podsV1, injectedPod)
	r.Injections = BuiltinInjections
	_, ok = r.answerRefusal(invalidError(field.Duplicate(spec.Child("containers").Index(2).Child("name"), "app")))
	require.False(t, ok, "no rule names it")
}

// What is not added again is a warning.
func TestWhatIsNotInjectedAgainIsAWarning(t *testing.T) {
	for _, injected := range []bool{true, false} {
		s := kubetest.Start(t)
		s.Put("/api/v1/namespaces/a", object{})
		c, err := NewClient(s.Config(), ManagerOf("u"), quietObserver{}, clock.RealClock{}, nil)
		require.NoError(t, err)
		s.SetFailureCauses(http.StatusUnprocessableEntity, metav1.StatusCause{Field: "spec.containers[2].name", Message: `Duplicate value: "istio-proxy"`})
		s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
			if r.Method != http.MethodPost {
				return 0, false
			}
			containers := objectList(childObject(body, "spec"), "containers")
			if len(containers) == 2 {
				return http.StatusUnprocessableEntity, false
			}
			if injected {
				childObject(body, "spec")["containers"] = []any{containers[0], object{"name": "istio-proxy"}}
			}
			return 0, false
		})
		r := refusedRequest(t, podsV1, injectedPod)
		r.Target, r.Injections = Target{GVR: podsV1, Namespace: "a", Name: "m"}, BuiltinInjections
		got := c.Apply(t.Context(), *r)
		require.NoError(t, got.Err)
		require.Equal(t, Created, got.Action)
		if injected {
			require.Empty(t, got.Warning)
		} else {
			require.Contains(t, got.Warning, "container istio-proxy is left out")
			require.Contains(t, got.Warning, "was not added again")
		}
	}
}

// What another version of an injector adds is no difference of a Pod, a change of the user's part is. What rules name
// is as in the live one, and nothing else.
func TestInjectedPartsAreLeftOutOfComparisonsAndUpdates(t *testing.T) {
	const stored = `{"kind":"Pod","metadata":{"annotations":{"sidecar.istio.io/status":"1","k":"1"}},"spec":{"volumes":[{"name":"data"},{"name":"istio-old"}],
		"initContainers":[{"name":"istio-init"}],"containers":[{"name":"app","image":"1","env":[{"name":"A"},{"name":"OTEL_OLD"}]},{"name":"istio-proxy","image":"1"}]}}`
	for name, tt := range map[string]struct {
		live string
		want string // "" is the live one
	}{
		"another proxy": {live: `{"kind":"Pod","metadata":{"annotations":{"sidecar.istio.io/status":"2","k":"1"}},"spec":{"volumes":[{"name":"istio-envoy"},{"name":"data"}],
			"containers":[{"name":"istio-proxy","image":"2"},{"name":"app","image":"1","env":[{"name":"A"},{"name":"OTEL_NEW"}],"volumeMounts":[{"name":"istio-envoy","mountPath":"/e"}]}]}}`},
		"no proxy": {live: `{"kind":"Pod","metadata":{"annotations":{"k":"1"}},"spec":{"volumes":[{"name":"data"}],"containers":[{"name":"app","image":"1","env":[{"name":"A"}]}]}}`},
		"another app": {
			live: `{"kind":"Pod","metadata":{"annotations":{"sidecar.istio.io/status":"2","k":"2"}},"spec":{"containers":[{"name":"app","image":"2"},{"name":"istio-proxy","image":"2"}],
				"initContainers":[{"name":"istio-init","image":"2"}]}}`,
			want: `{"kind":"Pod","metadata":{"annotations":{"sidecar.istio.io/status":"2","k":"1"}},"spec":{"volumes":[{"name":"data"}],
				"containers":[{"name":"app","image":"1","env":[{"name":"A"}]},{"name":"istio-proxy","image":"2"}],"initContainers":[{"name":"istio-init","image":"2"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, live := refusedRequest(t, podsV1, stored), refusedRequest(t, podsV1, tt.live).Object
			r.Injections = BuiltinInjections
			r.settleAnswers(live, nil)
			if tt.want == "" {
				tt.want = tt.live
			}
			require.JSONEq(t, tt.want, string(encoded(t, r.Object)))
			require.JSONEq(t, tt.live, string(encoded(t, live)))
		})
	}
}

// The template of a workload has what an injector wrote there only where its annotation says so: people give
// containers such names, too.
func TestInjectedPartsOfTemplatesAreThoseOfAnInjectorThatLeftItsMark(t *testing.T) {
	workload := func(mark, image string) string {
		return fmt.Sprintf(`{"kind":"Deployment","metadata":{},"spec":{"template":{"metadata":{"annotations":{%s}},"spec":{"containers":[{"name":"istio-proxy","image":%q},{"name":"envoy","image":%q}]}}}}`, mark, image, image)
	}
	for mark, proxy := range map[string]string{`"sidecar.istio.io/status":"x"`: "2", `"k":"v"`: "1"} {
		r, live := refusedRequest(t, workloadsV1, workload(mark, "1")), refusedRequest(t, workloadsV1, workload(mark, "2")).Object
		r.Injections = BuiltinInjections
		r.settleAnswers(live, nil)
		containers := objectsAt(r.Object, "spec", "template", "spec", "containers")
		require.Equal(t, []object{{"name": "istio-proxy", "image": proxy}, {"name": "envoy", "image": "1"}}, containers, mark)
	}
}

func TestInjectionRulesOfUsers(t *testing.T) {
	rules, errs := ParseInjectionRules(map[string]string{"mine": "containers: [\"my-*\"]", "bad": "container: [x]"})
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "ConfigMap holdfast-restore-injected: data[bad]")
	require.True(t, rules.namesThing(containerNames, "my-proxy"))
	require.True(t, rules.namesThing(containerNames, "istio-proxy"))
	require.False(t, rules.namesThing(containerNames, "other-proxy"))
}
