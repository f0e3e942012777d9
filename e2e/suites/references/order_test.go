package references

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// later marks what an object names and owns, or is owned by: the owner references decide the order.
const later = "later "

// namedObjects returns what the objects of a namespace name in their bodies.
func namedObjects() map[string]map[string][]string {
	machines := map[string][]string{"ClusterResourceSet addons": {"Secret addons"}}
	for name := range clusters {
		templates := []string{"Cluster " + name, "KubeadmConfigTemplate " + name, "DockerMachineTemplate " + name}
		machines["Cluster "+name] = []string{later + "DockerCluster " + name, later + "KubeadmControlPlane " + name}
		machines["KubeadmControlPlane "+name] = []string{"DockerMachineTemplate " + name}
		machines["MachineDeployment "+name], machines["MachineSet "+name+"-set"] = templates, templates
		for _, machine := range []string{name + "-0", name + "-1"} {
			machines["Machine "+machine] = []string{"Cluster " + name, "KubeadmConfig " + machine, "DockerMachine " + machine, "Secret " + machine}
		}
		machines["ClusterResourceSetBinding "+name] = []string{"Cluster " + name, "Secret addons", later + "ClusterResourceSet addons"}
	}
	return map[string]map[string][]string{
		"machines": machines,
		"certificates": {
			"Issuer authority":         {"Secret root"},
			"Certificate root":         {"Issuer self-signed", "Secret root"},
			"Certificate web":          {"Issuer authority", "Secret web"},
			"CertificateRequest web-1": {"Issuer authority"},
		},
		"databases": {
			"Cluster orders":          {"Secret superuser", "Secret store"},
			"ScheduledBackup nightly": {"Cluster orders"},
			"Backup nightly-1":        {"Cluster orders"},
			"Pooler rw":               {"Cluster orders", "Secret pooler"},
		},
	}
}

// creations are the revisions at which the API server stored the objects of the estate first.
type creations struct {
	mu        sync.Mutex
	revisions map[string]int64 // by "namespace Kind name"
}

// watchCreations notes creations until the test is done.
func watchCreations(t *testing.T, s *site.Site, e *estate) *creations {
	t.Helper()
	w := &creations{revisions: map[string]int64{}}
	c, err := client.NewWithWatch(s.Cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	for kind := range e.kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		events, err := c.Watch(ctx, list)
		require.NoError(t, err, kind.Kind)
		done.Go(func() {
			for event := range events.ResultChan() {
				if object, ok := event.Object.(client.Object); ok && event.Type == watch.Added {
					w.noteCreation(kind.Kind, object)
				}
			}
		})
	}
	return w
}

func (w *creations) noteCreation(kind string, object client.Object) {
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revisions[object.GetNamespace()+" "+kind+" "+object.GetName()] = revision
}

// awaitCreations waits until the creation of every object is noted.
func (w *creations) awaitCreations(t *testing.T, e *estate) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for namespace, objects := range e.spaces {
			for _, object := range objects {
				if w.revisions[namespace+" "+nameOf(object)] == 0 {
					return false
				}
			}
		}
		return true
	}, site.Patience, site.Look, "all creations are seen")
}

// early returns what was created before something that it names.
func (w *creations) early() (found []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for namespace, objects := range namedObjects() {
		for object, names := range objects {
			for _, name := range names {
				if !strings.HasPrefix(name, later) && w.revisions[namespace+" "+object] < w.revisions[namespace+" "+name] {
					found = append(found, fmt.Sprintf("%s is made before %s", object, name))
				}
			}
		}
	}
	return found
}
