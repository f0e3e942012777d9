package catalogue_test

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// checkSweep plants what dead jobs leave beside what is needed, another cluster's and objects
// without an owner.
func (b *bed) checkSweep(at string) {
	var system corev1.Namespace
	require.NoError(b.t, b.client.Get(b.t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &system))
	here, store := string(system.UID), b.openStore(at)
	put := func(key string, data []byte) {
		b.t.Helper()
		require.NoError(b.t, objectstore.PutBytes(b.t.Context(), store, key, data))
	}
	reserve := func(name, uid, cluster string) {
		b.t.Helper()
		data, err := layout.Owner{BackupUID: uid, ClusterUID: cluster}.Encode()
		require.NoError(b.t, err)
		put(layout.OwnerFile(name), data)
		put(layout.Part(name, uid, 1, "u", 0, 0), []byte("part"))
	}
	job := func(name string, phase velerov1.BackupPhase) string {
		b.t.Helper()
		backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		backup.Spec.StorageLocation, backup.Status.Phase = at, phase
		b.createObject(backup)
		return string(backup.UID)
	}
	prefix := "sweep-" + at + "-"
	live, failed := job(prefix+"live", velerov1.BackupPhaseInProgress), job(prefix+"failed", velerov1.BackupPhaseFailed)
	reserve(prefix+"live", live, here)
	put(layout.Part(prefix+"live", "earlier", 1, "u", 0, 0), []byte("part"))
	reserve(prefix+"failed", failed, here)
	reserve(prefix+"gone", "gone", here)
	reserve(prefix+"foreign", "gone", "there")
	put(layout.BackupTarball(prefix+"velero"), []byte("unfinished"))
	records, err := layout.RestoreOwner{RestoreUID: "gone", ClusterUID: here}.Encode()
	require.NoError(b.t, err)
	put(layout.RestoreOwnerFile(prefix+"r", "gone"), records)
	put(layout.RestoreRecords(prefix+"r", "gone")+"1", []byte("record"))

	want := []string{
		layout.OwnerFile(prefix + "failed"), layout.OwnerFile(prefix + "foreign"), layout.Part(prefix+"foreign", "gone", 1, "u", 0, 0),
		layout.OwnerFile(prefix + "live"), layout.Part(prefix+"live", live, 1, "u", 0, 0), layout.BackupTarball(prefix + "velero"),
	}
	b.requireEventually(func() bool {
		return slices.Equal(want, slices.DeleteFunc(b.listKeys(store), func(k string) bool { return !strings.Contains(k, prefix) }))
	}, "leftovers are swept, and nothing else")
}
