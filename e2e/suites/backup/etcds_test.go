package backup

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// An API server may keep kinds in an etcd of their own, whose revisions are no others': Secrets are
// behind the rest of the cluster here, and ConfigMaps ahead of it, with an old state at the
// revision of the rest. All of both are in the backup, at once, and the manifest says that they are
// outside the cut.
func TestKindsInAnEtcdOfTheirOwn(t *testing.T) {
	overrides := fmt.Sprintf("--etcd-servers-overrides=/secrets#%s,/configmaps#%s", testbed.StartEtcdT(t), testbed.StartEtcdT(t))
	b := newBed(t, func(c *testbed.Config) { c.APIServerArgs = append(c.APIServerArgs, overrides) })
	b.createObject(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	b.createObject(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "behind"}})
	b.createObject(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "within"}})
	early := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "early"}}
	b.createObject(t, early)
	for i := 0; parseRevision(t, early.ResourceVersion) < b.newestRevision(t)+200; i++ {
		patch := fmt.Sprintf(`{"data":{"n":"%d"}}`, i)
		require.NoError(t, b.client.Patch(t.Context(), early, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	b.createObject(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "late"}})
	require.Less(t, b.revisionOf(t, &corev1.SecretList{}), b.newestRevision(t), "secrets are behind")

	b.startRunner(t)
	backup := b.awaitFinished(t, b.admitBackup(t, "apart", velerov1.BackupSpec{}, shop))
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, readResults(t, b, "apart"))
	stored := readTarball(t, b.objectPath("apart", "apart.tar.gz"))
	for _, path := range []string{"secrets/namespaces/shop/behind", "configmaps/namespaces/shop/late", "serviceaccounts/namespaces/shop/within"} {
		require.Contains(t, stored, "resources/"+path+".json")
	}
	require.Contains(t, string(stored["resources/configmaps/namespaces/shop/early.json"]), early.Data["n"])

	path := b.objectPath("apart", "manifest.json.gz")
	info, err := os.Stat(path)
	require.NoError(t, err)
	m, err := manifest.Open(t.Context(), fileRange(path), info.Size())
	require.NoError(t, err)
	reasons := map[string]string{}
	for _, cut := range m.Trailer().Cuts {
		reasons[cut.Kind] = cut.Reason
	}
	require.Equal(t, map[string]string{"v1/Secret": "its storage counts revisions of its own", "v1/ConfigMap": "its storage counts revisions of its own"}, reasons)
}

func parseRevision(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// newestRevision returns the revision of what has no etcd of its own.
func (b *bed) newestRevision(t *testing.T) int { return b.revisionOf(t, &corev1.NamespaceList{}) }

func (b *bed) revisionOf(t *testing.T, list client.ObjectList) int {
	t.Helper()
	require.NoError(t, b.client.List(t.Context(), list, client.Limit(1)))
	return parseRevision(t, list.GetResourceVersion())
}
