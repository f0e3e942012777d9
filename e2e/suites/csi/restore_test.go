package csi

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// annotationNode names the node of the first consumer of a claim, as the scheduler writes it.
const annotationNode = "volume.kubernetes.io/selected-node"

// getClaim reads a claim.
func (b *bed) getClaim(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, c))
	return c
}

// addConsumer lets a claim have its first consumer.
func (b *bed) addConsumer(t *testing.T, namespace, name string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"node"}}}`, annotationNode)
	require.NoError(t, b.Client.Patch(t.Context(), b.getClaim(t, namespace, name), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// volumeNumber is the number in the volume of a claim, which is bound and counted in by a writer.
func (b *bed) volumeNumber(t *testing.T, namespace, name string) (n int) {
	t.Helper()
	require.Equal(t, corev1.ClaimBound, b.getClaim(t, namespace, name).Status.Phase, "%s/%s", namespace, name)
	require.NoError(t, b.driver.Write(b.storage.Volume(t, namespace, name), func(dir string) error { n = requireConsistent(t, dir); return nil }))
	return n
}

// restoreCompletes waits for the end of a restore, which is to be Completed.
func (b *bed) restoreCompletes(t *testing.T, name string) {
	t.Helper()
	r := b.RestoreEnds(t, name)
	require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-results.gz")))
}

// testRestored restores a namespace whose volumes were destroyed, to itself and to another one.
func (b *bed) testRestored(t *testing.T) (end func(*testing.T)) {
	const name, elsewhere, unused, replicas = "files", "files-elsewhere", "unused", 3
	of := b.statefulSet(t, name, replicas)
	spec, class := csistorage.Spec(), late
	spec.StorageClassName = &class
	require.NoError(t, b.Client.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: unused}, Spec: spec}))
	b.addConsumer(t, name, unused)
	of[unused] = b.storage.Volume(t, name, unused)
	volumes := slices.Collect(maps.Values(of))
	w := b.startWriter(t, volumes)
	b.Backup(t, name, b.bucket, name)
	b.BackupCompletes(t, name)
	b.requireClean(t, volumes, len(of), name)
	cut := map[string]int{} // by volume
	for _, s := range b.driverSnapshots(volumes) {
		cut[s.Volume] = requireConsistent(t, s.Dir)
		w.awaitLargerNumber(t, s.Volume, cut[s.Volume])
	}
	b.storage.Destroy(t, name)
	for _, v := range volumes {
		require.ErrorIs(t, b.driver.Write(v, nil), directorydriver.ErrNoVolume)
	}

	for to, restore := range map[string]string{name: "files-same", elsewhere: "files-mapped"} {
		b.Restore(t, restore, name, name, to)
		b.restoreCompletes(t, restore)
		for claim, volume := range of {
			if claim != unused {
				require.Equal(t, cut[volume], b.volumeNumber(t, to, claim))
			}
		}
		require.Equal(t, corev1.ClaimPending, b.getClaim(t, to, unused).Status.Phase, "it waits for its first consumer, and the restore does not")
		require.Contains(t, string(b.bucket.ReadZipped(t, "restores/"+restore+"/"+restore+"-volumeinfo.json.gz")), `"restoreMethod":"CSISnapshot"`)
	}
	return func(t *testing.T) {
		require.Eventually(t, func() bool { return len(b.snapshotObjects(t, name)) == 2 && len(b.snapshotObjects(t, elsewhere)) == 2 },
			site.Patience, site.Look, "the pairs of bound claims go, those of waiting ones stay")
		b.addConsumer(t, elsewhere, unused)
		b.storage.Volume(t, elsewhere, unused)
		require.Equal(t, cut[of[unused]], b.volumeNumber(t, elsewhere, unused))
		b.storage.Destroy(t, name)
		b.requireClean(t, volumes, len(of), name, elsewhere)
		b.DeleteBackup(t, name)
		b.requireClean(t, volumes, 0, name, elsewhere)
		require.Equal(t, cut[of["data-files-0"]], b.volumeNumber(t, elsewhere, "data-files-0"), "restored data outlives the backup")
	}
}

// restorerDies kills the runner while it makes snapshot objects, and its successor while claims wait
// for their volumes.
func (b *bed) restorerDies(t *testing.T) (end func(*testing.T)) {
	const name, to, claims, n = "restorer", "restorer-copy", 3, 7
	volumes := b.createPod(t, name, claims, nil)
	require.NoError(t, (&volumeWriter{driver: b.driver, volumes: volumes}).setNumber(n))
	b.Backup(t, name, b.bucket, name)
	b.BackupCompletes(t, name)
	b.requireClean(t, volumes, claims, name)
	b.setBehaviour(volumes, directorydriver.Behaviour{NotReady: true})
	before := b.driver.Restored()
	b.Restore(t, name, name, name, to)
	made := map[types.UID]bool{}
	for _, kill := range []int{1, 2 * claims} { // once there are so many snapshot objects
		require.Eventually(t, func() bool { return len(b.snapshotObjects(t, to)) >= kill }, site.Patience, site.Look, "%d snapshot objects are made", kill)
		b.Kill(t, "restore-runner")
		there := map[types.UID]bool{}
		for _, o := range b.snapshotObjects(t, to) {
			there[o.GetUID()] = true
		}
		require.Subset(t, there, made)
		made = there
	}
	require.Len(t, made, 2*claims)
	b.setBehaviour(volumes, directorydriver.Behaviour{})
	b.restoreCompletes(t, name)
	for _, o := range b.snapshotObjects(t, to) {
		require.True(t, made[o.GetUID()], "%s is a second one", o.GetName())
	}
	require.Equal(t, claims, b.driver.Restored()-before)
	for i := range claims {
		require.Equal(t, n, b.volumeNumber(t, to, fmt.Sprintf("data-%d", i)))
	}
	return func(t *testing.T) {
		b.requireClean(t, volumes, claims, name, to)
		b.DeleteBackup(t, name)
		b.requireClean(t, volumes, 0, name, to)
	}
}
