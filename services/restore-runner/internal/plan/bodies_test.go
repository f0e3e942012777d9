package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
)

// The API server chose a node port that a Service which came later was to keep.
func TestServicesThatKeepANodePortComeBeforeThoseThatGetAny(t *testing.T) {
	const kept, second, chosen, none, unread = "services z/kept", "services z/second", "services a/chosen", "services a/none", "services a/unread"
	o := options{bodies: map[string]string{kept: "kept", second: "kept", chosen: "chosen", none: ""}}
	items := newItems(kept, second, chosen, none, unread, "deployments.apps a/web")
	p := planOf(t, listingOf(items...), o)
	for _, k := range []string{kept, second} {
		require.True(t, waitsFor(t, p, k, chosen))
		require.False(t, waitsFor(t, p, k, none))
		require.False(t, waitsFor(t, p, k, unread))
	}
	require.False(t, waitsFor(t, p, kept, second))
	require.Empty(t, p.Notes())

	items = newItems(chosen, "deployments.apps a/web")
	items = append(items, newItem(kept, ownerReference("apps/v1", "Deployment", "deployments.apps a/web", true)))
	require.False(t, waitsFor(t, planOf(t, listingOf(items...), options{}), kept, chosen))
	owner := newItem("widgets.example.com z/w", ownerReference("v1", "Service", chosen, true))
	p = planOf(t, listingOf(newItem(chosen), owner, newItem(kept, objmeta.Owner{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: owner.UID})), o)
	require.Empty(t, p.Notes(), "a cycle is cut here first, in silence")
}

// Controllers made more Pods than a quota allows that came after their workloads.
func TestAQuotaOfPodsComesBetweenPodsAndWorkloads(t *testing.T) {
	const quota, pod, secret, workload = "resourcequotas a/q", "pods a/p", "secrets a/s", "replicasets.apps a/r"
	items := newItems(quota, pod, secret, workload, "deployments.apps b/other", "widgets.example.com a/w", "configmaps b/other")
	for hard, bounds := range map[string]bool{
		`"pods":"1"`:                               true,
		`"count/pods":"1","secrets":"9"`:           true,
		`"requests.cpu":"1","limits.memory":"1Gi"`: true,
		`"cpu":"1","count/configmaps":"9"`:         true,
		`"requests.nvidia.com/gpu":"1"`:            true,
		`"pods":"1","gold.storageclass.storage.k8s.io/requests.storage":"1Gi","requests.storage":"2Gi"`: true,
		`"pods":"1","gold.storageclass.storage.k8s.io/persistentvolumeclaims":"1"`:                      true,
		`"gold.storageclass.storage.k8s.io/requests.storage":"1Gi"`:                                     false,
		`"services":"5"`: false,
		`"pods":"1","count/deployments.apps":"2"`: false,
		`"pods":"1","replicationcontrollers":"2"`: false,
		``: false,
	} {
		t.Run(hard, func(t *testing.T) {
			p := planOf(t, listingOf(items...), options{bodies: map[string]string{quota: fmt.Sprintf(`{"spec":{"hard":{%s}}}`, hard)}})
			require.Equal(t, bounds, waitsFor(t, p, quota, workload))
			require.True(t, waitsFor(t, p, pod, quota))
			require.True(t, waitsFor(t, p, secret, quota))
			require.False(t, waitsFor(t, p, quota, "deployments.apps b/other"))
			require.False(t, waitsFor(t, p, quota, pod))
			i, _ := p.Find(quotasResource, "a", "q")
			require.Equal(t, bounds, p.Bounds(i))
			require.Empty(t, p.Notes())
		})
	}
	p := planOf(t, listingOf(items...), options{order: restoreorder.Owners, bodies: map[string]string{quota: `{"spec":{"hard":{"pods":"1"}}}`}})
	require.True(t, waitsFor(t, p, quota, workload))
}
