package csi

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
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

// restore is the second half of a case, which waits for what comes by itself.
type restore struct {
	name string
	end  func(*testing.T)
}

// beginRestores runs the first halves of the cases of restores, and returns the second ones.
func (b *bed) beginRestores(t *testing.T) (begun []restore) {
	t.Helper()
	theirs := b.storeAsVelero(t)
	for _, r := range []struct {
		name  string
		begin func(*testing.T) func(*testing.T)
	}{
		{"files come back as they were at the cut", b.testRestored},
		{"a killed runner restores no claim twice", b.restorerDies},
		{"a backup as Velero writes it", theirs},
		{"a snapshot that the driver has lost", b.testLostSnapshot},
	} {
		t.Run(r.name, func(t *testing.T) { begun = append(begun, restore{r.name, r.begin(t)}) })
	}
	return begun
}

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

// awaitRestoreEnd waits for the end of a restore, checks its phase, and returns its results.
func (b *bed) awaitRestoreEnd(t *testing.T, name string, phase velerov1.RestorePhase) (results string) {
	t.Helper()
	r := b.RestoreEnds(t, name)
	results = string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-results.gz"))
	require.Equal(t, phase, r.Status.Phase, results)
	return results
}

// awaitCompleted waits for the end of a backup.
func (b *bed) awaitCompleted(t *testing.T, name string) *velerov1.Backup {
	t.Helper()
	backup := b.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, b.readFile(t, name, "-results.gz"))
	return backup
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
	b.awaitCompleted(t, name)
	b.requireClean(t, volumes, len(of), name)
	cut := map[string]int{} // by volume
	for _, s := range b.driverSnapshots(volumes) {
		cut[s.Volume] = requireConsistent(t, s.Dir)
		w.goesOn(t, s.Volume, cut[s.Volume])
	}
	b.storage.Destroy(t, name)
	for _, v := range volumes {
		require.ErrorIs(t, b.driver.Write(v, nil), directorydriver.ErrNoVolume)
	}

	for to, restore := range map[string]string{name: "files-same", elsewhere: "files-mapped"} {
		b.Restore(t, restore, name, name, to)
		b.awaitRestoreEnd(t, restore, velerov1.RestorePhaseCompleted)
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
		b.deleteBackup(t, name)
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
	b.awaitCompleted(t, name)
	b.requireClean(t, volumes, claims, name)
	b.setBehaviour(volumes, directorydriver.Behaviour{NotReady: true})
	before := b.driver.Restored()
	b.Restore(t, name, name, name, to)
	made := map[types.UID]bool{}
	for _, kill := range []int{1, 2 * claims} { // once there are so many snapshot objects
		require.Eventually(t, func() bool { return len(b.snapshotObjects(t, to)) >= kill }, site.Patience, site.Look, "%d snapshot objects are made", kill)
		b.killService(t, "restore-runner")
		there := map[types.UID]bool{}
		for _, o := range b.snapshotObjects(t, to) {
			there[o.GetUID()] = true
		}
		require.Subset(t, there, made)
		made = there
	}
	require.Len(t, made, 2*claims)
	b.setBehaviour(volumes, directorydriver.Behaviour{})
	b.awaitRestoreEnd(t, name, velerov1.RestorePhaseCompleted)
	for _, o := range b.snapshotObjects(t, to) {
		require.True(t, made[o.GetUID()], "%s is a second one", o.GetName())
	}
	require.Equal(t, claims, b.driver.Restored()-before)
	for i := range claims {
		require.Equal(t, n, b.volumeNumber(t, to, fmt.Sprintf("data-%d", i)))
	}
	return func(t *testing.T) {
		b.requireClean(t, volumes, claims, name, to)
		b.deleteBackup(t, name)
		b.requireClean(t, volumes, 0, name, to)
	}
}

// storeAsVelero leaves a backup in the bucket as Velero 1.18 does. It returns the case that restores
// and deletes it.
func (b *bed) storeAsVelero(t *testing.T) (begin func(*testing.T) func(*testing.T)) {
	t.Helper()
	const name, to, n = "from-velero", "shop-copy", 7
	b.Namespace(t, name)
	volumes := []string{b.createClaim(t, name, "data")}
	require.NoError(t, (&volumeWriter{driver: b.driver, volumes: volumes}).setNumber(n))
	taken, err := b.driver.CreateSnapshot(t.Context(), &csispec.CreateSnapshotRequest{Name: name, SourceVolumeId: volumes[0]})
	require.NoError(t, err)
	b.storeVeleroBackup(t, name, taken.GetSnapshot().GetSnapshotId())
	return func(t *testing.T) func(*testing.T) {
		t.Helper()
		require.Eventually(t, func() bool {
			return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, &velerov1.Backup{}) == nil
		}, site.Patience, site.Look, "the backup is synced")
		b.Restore(t, name, name, "shop", to)
		b.awaitRestoreEnd(t, name, velerov1.RestorePhaseCompleted)
		require.Equal(t, n, b.volumeNumber(t, to, "data"))
		pv := &corev1.PersistentVolume{}
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Name: b.getClaim(t, to, "data").Spec.VolumeName}, pv))
		require.Equal(t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy)
		return func(t *testing.T) {
			b.requireClean(t, volumes, 1, "shop", to)
			b.deleteBackup(t, name)
			b.requireClean(t, volumes, 0, "shop", to)
		}
	}
}

// testLostSnapshot restores a claim whose snapshot was removed from the driver.
func (b *bed) testLostSnapshot(t *testing.T) (end func(*testing.T)) {
	const name, to = "lost", "lost-copy"
	volumes := b.createPod(t, name, 1, nil)
	b.Backup(t, name, b.bucket, name)
	b.awaitCompleted(t, name)
	b.requireClean(t, volumes, 1, name)
	handle := b.driverSnapshots(volumes)[0].ID
	_, err := b.driver.DeleteSnapshot(t.Context(), &csispec.DeleteSnapshotRequest{SnapshotId: handle})
	require.NoError(t, err)
	b.Restore(t, name, name, name, to)
	return func(t *testing.T) {
		require.Regexp(t, "claim "+to+"/data-0 is not bound to a volume of CSI snapshot "+handle+" after 1m0s: driver "+driver+": .*can not find snapshot for snapshotID "+handle,
			b.awaitRestoreEnd(t, name, velerov1.RestorePhasePartiallyFailed))
		b.storage.Destroy(t, to)
		b.requireClean(t, volumes, 0, name, to)
		b.deleteBackup(t, name)
	}
}
