package references

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pauseMarks is what was seen of the marks that pause owners.
type pauseMarks struct {
	mu       sync.Mutex
	paused   map[string]int
	unpaused []string
}

var pausedOwners = map[string]*unstructured.Unstructured{
	"machines":  newCluster("cluster.x-k8s.io/v1beta2"),
	"databases": newCluster("postgresql.cnpg.io/v1"),
}

func newCluster(apiVersion string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind("ClusterList")
	return u
}

func isPaused(cluster *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return paused || cluster.GetAnnotations()["cnpg.io/reconciliationLoop"] == "disabled"
}

// notePauses looks at the Clusters of a namespace in which an object is to be created.
func (p *pauseMarks) notePauses(t *testing.T, c client.Client, namespace string) {
	if pausedOwners[namespace] == nil {
		return
	}
	list := &unstructured.UnstructuredList{Object: pausedOwners[namespace].DeepCopy().Object}
	if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list.Items {
		name := list.Items[i].GetName()
		if !isPaused(&list.Items[i]) {
			p.unpaused = append(p.unpaused, name)
			continue
		}
		if p.paused == nil {
			p.paused = map[string]int{}
		}
		p.paused[name]++
	}
}

// require wants every Cluster to have been paused while objects were created, and to be now as it was in the backup.
func (p *pauseMarks) require(t *testing.T, c client.Client) {
	t.Helper()
	require.Empty(t, p.unpaused, "not paused while objects are created")
	for namespace, kind := range pausedOwners {
		list := &unstructured.UnstructuredList{Object: kind.DeepCopy().Object}
		require.NoError(t, c.List(t.Context(), list, client.InNamespace(namespace)))
		for i := range list.Items {
			name := list.Items[i].GetName()
			require.Positive(t, p.paused[name], "%s was paused", name)
			require.Equal(t, clusters[name], isPaused(&list.Items[i]), "%s has its mark back", name)
		}
	}
}
