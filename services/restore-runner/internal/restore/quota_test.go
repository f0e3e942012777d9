package restore_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// putQuota has a quota in namespace a that counts what hard names.
func putQuota(s *kubetest.Server, hard object) {
	s.Put("/api/v1/namespaces/a", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "a"}})
	s.Put("/api/v1/namespaces/a/resourcequotas/q", object{"apiVersion": "v1", "kind": "ResourceQuota",
		"metadata": object{"name": "q", "namespace": "a"}, "spec": object{"hard": hard}})
}

// The attempt to create an object that exists takes a place of the quota, which is free again only
// when the quota is counted anew: with one place free, the one object that was missing did not come back.
func TestOnlyWhatIsMissingTakesPlacesOfAQuota(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	putQuota(s, object{"count/configmaps": "251", "requests.cpu": "1"})
	const existing = 250 // more than two pages
	for i := range existing {
		name := fmt.Sprintf("c%03d", i)
		b.addObject("configmaps", "v1", "ConfigMap", "source", name, nil)
		s.Put("/api/v1/namespaces/a/configmaps/"+name, object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name, "namespace": "a"}})
	}
	b.addObject("configmaps", "v1", "ConfigMap", "source", "missing", nil)
	b.addObject("secrets", "v1", "Secret", "source", "uncounted", nil)
	var attempts atomic.Int64
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps") && attempts.Add(1) > 1 {
			return http.StatusForbidden, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{NamespaceMapping: map[string]string{"source": "a"}})
	require.Empty(t, f.results.Errors.allMessages())
	require.Empty(t, f.results.Warnings.allMessages())
	require.EqualValues(t, 1, attempts.Load())
	require.NotNil(t, s.Object("/api/v1/namespaces/a/configmaps/missing"))
	require.Contains(t, f.list["v1/ConfigMap"], "a/c000(skipped)")
	require.Len(t, s.Requests("GET /api/v1/resourcequotas"), 1)
	require.Len(t, s.Requests("GET /api/v1/namespaces/a/configmaps/"), existing)
	require.Empty(t, s.Requests("GET /api/v1/namespaces/a/secrets"), "no quota counts them")
}

// A namespace that the restore makes holds nothing from before.
func TestNewNamespacesNeedNoLookAtQuotas(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("namespaces", "v1", "Namespace", "", "a", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	require.Empty(t, runRestore(t, s, b, velerov1.RestoreSpec{}).results.Errors.allMessages())
	require.Empty(t, s.Requests("GET "))
}

// A policy may refuse a Namespace that is there, too.
func TestARefusedNamespaceMayExist(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	putQuota(s, object{})
	b.addObject("namespaces", "v1", "Namespace", "", "a", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "absent", "c", nil)
	s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/namespaces") {
			return http.StatusForbidden, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Equal(t, []string{"a/c(created)", "absent/c(failed)"}, f.list["v1/ConfigMap"])
	require.Equal(t, []string{"a(skipped)"}, f.list["v1/Namespace"])
}

// The API server heeds a quota once its controller has counted: until then a workload's controller made more Pods
// than the quota allows.
func TestWorkloadsWaitUntilTheirQuotaIsInForce(t *testing.T) {
	const quota = "/api/v1/namespaces/a/resourcequotas/q"
	for name, counted := range map[string]bool{"counted": true, "never counted": false} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			b.addObject("resourcequotas", "v1", "ResourceQuota", "a", "q", object{"spec": object{"hard": object{"pods": "1"}}})
			b.addObject("replicasets.apps", "apps/v1", "ReplicaSet", "a", "web", nil)
			var reads, atWorkload atomic.Int64
			s.FailTogether(func(r *http.Request, _ map[string]any) (int, bool) {
				switch {
				case r.Method == http.MethodGet && r.URL.Path == quota && reads.Add(1) == 3 && counted:
					s.Change(quota, func(live object) { live["status"] = object{"hard": object{"pods": "1"}} })
				case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/replicasets"):
					atWorkload.Store(reads.Load())
				}
				return 0, false
			})
			clk := clocktesting.NewFakeClock(time.Now())
			stepClock(t, clk)
			f := runAt(t, clk, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, []string{"a/web(created)"}, f.list["apps/v1/ReplicaSet"])
			if counted {
				require.EqualValues(t, 3, atWorkload.Load())
			} else {
				require.Greater(t, atWorkload.Load(), int64(3), "it is waited for some seconds, not for ever")
			}
		})
	}
}
