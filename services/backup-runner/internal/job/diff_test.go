package job

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/difference"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// clusterDiff is what a comparison with the cluster sent.
type clusterDiff struct {
	lines    []string
	counts   string
	messages []string
	listed   int64
}

// diffCluster compares a backup with the cluster, and expects a clean work dir and a bucket as it was.
func (w *world) diffCluster(t *testing.T, b *velerov1.Backup, c difference.Comparison) (found clusterDiff, err error) {
	t.Helper()
	keys := w.store.Keys()
	c.Send = func(differences []*manifestv1.ItemDifference, counts *manifestv1.DiffCounts) error {
		for _, d := range differences {
			found.lines = append(found.lines, fmt.Sprintf("%s %s %s/%s", strings.TrimPrefix(d.GetChange().String(), "CHANGE_"), d.GetKind(), d.GetNamespace(), d.GetName()))
			for _, f := range d.GetFields() {
				found.lines = append(found.lines, fmt.Sprintf("  %s: %s -> %s masked %v", f.GetPath(), f.GetFrom(), f.GetTo(), f.GetMasked()))
			}
		}
		found.counts = fmt.Sprintf("+%d -%d ~%d =%d", counts.GetAdded(), counts.GetRemoved(), counts.GetChanged(), counts.GetUnchanged())
		return nil
	}
	run := &ClusterDiff{Comparison: c, Backup: w.readBackup(t, b), Progress: func(n int64) { found.listed = n }, Messages: func(texts []string) { found.messages = texts }}
	err = New(w.Config).DiffCluster(t.Context(), run)
	left, readErr := os.ReadDir(w.WorkDir)
	require.NoError(t, readErr)
	require.Empty(t, left)
	require.Equal(t, keys, w.store.Keys())
	return found, err
}

func TestABackupIsComparedWithTheCluster(t *testing.T) {
	w := newWorld(t)
	w.ConsistentCut = false // objects and Backups are of different servers here
	w.api.Add("namespaces", kubetest.Object{Name: "b"})
	w.api.Add("configmaps", kubetest.Object{Namespace: "b", Name: "other", Body: map[string]any{"data": map[string]any{"n": "1"}}})
	w.api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Body: map[string]any{"status": map[string]any{"phase": "Pending"}}})
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	found, err := w.diffCluster(t, b, difference.Comparison{WithFields: true})
	require.NoError(t, err)
	require.Equal(t, clusterDiff{counts: "+0 -0 ~0 =54", listed: 54}, found)

	w.api.Add("configmaps", kubetest.Object{Namespace: "a", Name: "new"})
	w.api.Delete("/api/v1/namespaces/a/configmaps/cm-07")
	w.api.Change("/api/v1/namespaces/b/configmaps/other", func(o map[string]any) { o["data"] = map[string]any{"n": "2"} })
	w.api.Change("/api/v1/namespaces/a/pods/p", func(o map[string]any) { o["status"] = map[string]any{"phase": "Running"} })
	lines := []string{"REMOVED ConfigMap a/cm-07", "ADDED ConfigMap a/new", "CHANGED ConfigMap b/other", `  data.n: "1" -> "2" masked false`}
	found, err = w.diffCluster(t, b, difference.Comparison{WithFields: true})
	require.NoError(t, err)
	require.Equal(t, clusterDiff{lines: lines, counts: "+1 -1 ~1 =52", listed: 54}, found)

	found, err = w.diffCluster(t, b, difference.Comparison{Kinds: []string{"pods", "ns"}})
	require.NoError(t, err)
	require.Equal(t, "+0 -0 ~0 =3", found.counts)

	before := len(w.api.Requests("/api/v1/namespaces/a/"))
	found, err = w.diffCluster(t, b, difference.Comparison{Namespace: "b"})
	require.NoError(t, err)
	require.Equal(t, lines[2:3], found.lines)
	require.Equal(t, "+0 -0 ~1 =0", found.counts)
	require.Len(t, w.api.Requests("/api/v1/namespaces/a/"), before)
	require.LessOrEqual(t, found.listed, int64(2), "other namespaces are not listed")

	// A tarball alone is compared by its bodies.
	require.NoError(t, w.store.Delete(t.Context(), layout.BackupManifest("b1")))
	found, err = w.diffCluster(t, b, difference.Comparison{})
	require.NoError(t, err)
	require.Equal(t, []string{lines[0], lines[1], lines[2]}, found.lines)

	// Kinds that cannot be listed are not compared, and that is said.
	w.api.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
		if r.URL.Path == "/api/v1/pods" {
			return http.StatusForbidden, false
		}
		return 0, false
	})
	found, err = w.diffCluster(t, b, difference.Comparison{})
	require.NoError(t, err)
	require.Equal(t, []string{lines[0], lines[1], lines[2]}, found.lines)
	require.Equal(t, "+1 -1 ~1 =51", found.counts)
	require.Len(t, found.messages, 1)
	require.Contains(t, found.messages[0], "objects of pods could not be listed")
	for kind, messages := range map[string]int{"pods": 1, "cm": 0} {
		found, err = w.diffCluster(t, b, difference.Comparison{Kinds: []string{kind}})
		require.NoError(t, err)
		require.Len(t, found.messages, messages, kind)
	}
}

// listFrom has the objects listed from a server.
func (w *world) listFrom(t *testing.T, server *kubetest.Server) {
	t.Helper()
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close)
	var err error
	w.Cluster, err = cut.NewCluster(&rest.Config{Host: srv.URL, QPS: -1}, clock.RealClock{}, t.TempDir())
	require.NoError(t, err)
}

// Objects of an API group that does not answer are not compared; those of a kind that is no longer served are gone.
func TestObjectsOfASilentGroupAreNotCompared(t *testing.T) {
	w := newWorld(t)
	w.ConsistentCut = false // objects and Backups are of different servers here
	namespaces := kubetest.Kind{Version: "v1", Kind: "Namespace", Resource: "namespaces"}
	whole := kubetest.New(namespaces, kubetest.Kind{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespaced: true},
		kubetest.Kind{Group: "example.com", Version: "v1", Kind: "Widget", Resource: "widgets", Namespaced: true, Custom: true},
		kubetest.Kind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition", Resource: "customresourcedefinitions"})
	whole.Add("configmaps", kubetest.Object{Namespace: "a", Name: "c"})
	whole.Add("widgets.example.com", kubetest.Object{Namespace: "a", Name: "w1"})
	whole.Add("customresourcedefinitions.apiextensions.k8s.io", kubetest.Object{Name: "widgets.example.com"})
	silent := kubetest.New(namespaces)
	silent.DeadGroups = []string{"example.com"}
	for _, server := range []*kubetest.Server{whole, silent} {
		server.Add("namespaces", kubetest.Object{Name: "a"})
	}
	w.listFrom(t, whole)
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.listFrom(t, silent)
	found, err := w.diffCluster(t, b, difference.Comparison{})
	require.NoError(t, err)
	require.Equal(t, []string{"REMOVED ConfigMap a/c"}, found.lines, "nor are their definitions")
	require.Len(t, found.messages, 1)
	require.Contains(t, found.messages[0], "API group example.com/v1 does not answer")
	for kind, messages := range map[string]int{"widget": 1, "cm": 0} {
		found, err = w.diffCluster(t, b, difference.Comparison{Kinds: []string{kind}})
		require.NoError(t, err)
		require.Len(t, found.messages, messages, kind)
	}
}

func TestABackupIsNotComparedWithoutItsObjects(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	_, err := w.diffCluster(t, b, difference.Comparison{})
	require.ErrorIs(t, err, errgrpc.ErrPrecondition)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	_, err = w.diffCluster(t, b, difference.Comparison{Kinds: []string{"unheard"}})
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
	require.ErrorContains(t, err, `neither backup "b1" nor the cluster holds an object of kind "unheard"`)
	w.store.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
	_, err = w.diffCluster(t, b, difference.Comparison{})
	require.ErrorIs(t, err, errgrpc.ErrUnavailable)
	w.store.Inject(nil)
	require.NoError(t, w.store.Delete(t.Context(), layout.BackupManifest("b1")))
	w.store.Set(layout.BackupTarball("b1"), []byte("no tarball"))
	_, err = w.diffCluster(t, b, difference.Comparison{})
	require.ErrorIs(t, err, errgrpc.ErrCorrupt)
	require.NoError(t, w.store.Delete(t.Context(), layout.BackupTarball("b1")))
	_, err = w.diffCluster(t, b, difference.Comparison{})
	require.ErrorIs(t, err, errgrpc.ErrNotFound)
}

// Namespaces that match a pattern are those of now, and a label keeps one out.
func TestTheNamespacesOfAComparisonAreThoseOfNow(t *testing.T) {
	w := newWorld(t)
	for name, label := range map[string]string{"kube-new": "false", "kube-out": "true"} {
		require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{selection.LabelExclude: label}}}))
	}
	k := New(w.Config)
	spec := &velerov1.BackupSpec{IncludedNamespaces: []string{"kube-*", "named"}}
	for only, want := range map[string][]string{"": {"kube-new", "kube-system", "named"}, "kube-system": {"kube-system"}, "kube-out": {}, "other": {}} {
		found, err := k.selectedNamespaces(t.Context(), spec, only)
		require.NoError(t, err)
		require.Equal(t, want, found)
	}
}
