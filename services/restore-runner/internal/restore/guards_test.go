package restore_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

const policyPath = "/apis/networking.k8s.io/v1/namespaces/mesh/networkpolicies"

// A policy whose webhook is served by a Pod that waits for the policy would wait until it fails.
func TestAGuardThatWaitsForAWebhookOfTheRestoreReleasesThePods(t *testing.T) {
	for name, tt := range map[string]struct {
		address  string
		released bool
	}{
		"a Service of the restore":    {"https://hook.mesh.svc:443/validate?timeout=10s", true},
		"a Service of another":        {"https://hook.elsewhere.svc:443/validate?timeout=10s", false},
		"an address of somebody else": {"https://mesh.example.com/validate?timeout=10s", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			s.Serve("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy", true)
			b.addObject("networkpolicies.networking.k8s.io", "networking.k8s.io/v1", "NetworkPolicy", "mesh", "deny", nil)
			b.addObject("pods", "v1", "Pod", "mesh", "hook", nil)
			s.SetFailureText(http.StatusInternalServerError, `Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: Post "`+tt.address+`": service "hook" not found`)
			var tries, before atomic.Int64
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				switch {
				case r.Method != http.MethodPost:
				case strings.HasSuffix(r.URL.Path, "/pods"):
					before.Store(tries.Load())
				case r.URL.Path == policyPath && tries.Add(1) <= 3:
					return http.StatusInternalServerError, false
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{}, func(c *restore.Config) { c.ResourceTimeout = time.Minute })
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, 2, f.recorder.ByAction()["created"])
			if !tt.released {
				require.Empty(t, f.results.Warnings.allMessages())
				require.EqualValues(t, 4, before.Load())
				return
			}
			require.Less(t, before.Load(), int64(4))
			require.Equal(t, 1, strings.Count(f.results.Warnings.allMessages(), "\n")+1)
			require.Contains(t, f.results.Warnings.allMessages(), `mesh/deny: Pods and workloads that it guards come before it: its creation waits for a webhook in namespace "mesh"`)
		})
	}
}

// Whoever reads the warnings knows that Pods ran without the policy; of one that was there they did not.
func TestAGuardBehindAnAPIServiceOfTheRestoreWarns(t *testing.T) {
	for name, there := range map[string]bool{"it is restored": false, "it was there": true} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			s.Serve("apiregistration.k8s.io/v1", "apiservices", "APIService", false)
			s.Serve("projectcalico.org/v3", "networkpolicies", "NetworkPolicy", true)
			b.addObject("apiservices.apiregistration.k8s.io", "apiregistration.k8s.io/v1", "APIService", "", "v3.projectcalico.org", object{"spec": object{"group": "projectcalico.org", "version": "v3"}})
			b.addObject("networkpolicies.projectcalico.org", "projectcalico.org/v3", "NetworkPolicy", "a", "deny", nil)
			b.addObject("pods", "v1", "Pod", "a", "p", nil)
			if there {
				s.Put("/apis/projectcalico.org/v3/namespaces/a/networkpolicies/deny", object{"apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy", "metadata": object{"name": "deny", "namespace": "a"}})
			}
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, !there, strings.Contains(f.results.Warnings.allMessages(), "networkpolicies.projectcalico.org a/deny: the Pods that it guards were restored before it"))
		})
	}
}
