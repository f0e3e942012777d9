package csi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestCSISnapshots(t *testing.T) {
	b := newBed(t)
	var restored, resumed func(*testing.T) // wait for what comes by itself, meanwhile
	t.Run("files come back as they were at the cut", func(t *testing.T) { restored = b.testRestored(t) })
	t.Run("a killed runner restores no claim twice", func(t *testing.T) { resumed = b.restorerDies(t) })
	t.Run("a StatefulSet whose files change, on a driver that is slow", b.backedUp)
	t.Run("hooks of a Pod, and the cut between them", b.testQuiesced)
	t.Run("a killed runner takes no second snapshot", b.runnerDies)
	t.Run("a snapshot that is never ready, of a backup that is cancelled", b.testCancelled)
	t.Run("in the end: files come back as they were at the cut", restored)
	t.Run("in the end: a killed runner restores no claim twice", resumed)
}

// statefulSet makes a StatefulSet in a namespace of its name, and returns the volumes by claim.
func (b *bed) statefulSet(t *testing.T, name string, replicas int32) map[string]string {
	t.Helper()
	b.Namespace(t, name)
	labels := map[string]string{"app": name}
	require.NoError(t, b.Client.Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "db", Image: "example.com/db", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: csistorage.Spec()}},
		},
	}))
	volumes := map[string]string{}
	for i := range replicas {
		claim := fmt.Sprintf("data-%s-%d", name, i)
		volumes[claim] = b.storage.Volume(t, name, claim)
	}
	return volumes
}

func (b *bed) backedUp(t *testing.T) {
	const name, claims = "stateful", 3
	of := b.statefulSet(t, name, claims)
	var volumes []string
	for _, v := range of {
		volumes = append(volumes, v)
	}
	w := b.startWriter(t, volumes)
	b.setBehaviour(volumes, directorydriver.Behaviour{NotReady: true})
	floor := map[string]int{}
	for _, v := range volumes {
		floor[v] = w.currentNumber(t, v)
	}
	insisting := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: velerov1.BackupSpec{
		StorageLocation: b.bucket.Location, IncludedNamespaces: []string{name}, SnapshotVolumes: ptr.To(true)}} // and no VolumeSnapshotLocation
	require.NoError(t, b.Client.Create(t.Context(), insisting))
	b.awaitWaiting(t, name)
	b.setBehaviour(volumes, directorydriver.Behaviour{})
	backup := b.BackupCompletes(t, name)
	require.Equal(t, claims, backup.Status.CSIVolumeSnapshotsAttempted)
	require.Equal(t, claims, backup.Status.CSIVolumeSnapshotsCompleted)
	require.Equal(t, claims, backup.Status.BackupItemOperationsCompleted)
	b.requireClean(t, volumes, claims, name)
	for _, s := range b.driverSnapshots(volumes) {
		n := requireConsistent(t, s.Dir)
		require.GreaterOrEqual(t, n, floor[s.Volume], "the cut is after the beginning of the backup")
		w.awaitLargerNumber(t, s.Volume, n)
	}
	b.checkStored(t, name, of)
	b.claimOfSnapshot(t, "from-"+name, b.driverSnapshots(volumes)[0])

	b.DeleteBackup(t, name)
	b.requireClean(t, volumes, 0, name)
}

// checkStored checks what a backup has of its snapshots.
func (b *bed) checkStored(t *testing.T, name string, volumes map[string]string) {
	t.Helper()
	handles := map[string]string{} // by volume
	for _, s := range b.driver.Snapshots() {
		handles[s.Volume] = s.ID
	}
	stored, kinds := map[string][]byte{}, map[string]int{}
	b.bucket.EachStored(t, name, func(path string, content []byte) { // of a path that comes twice the later one counts
		if parts := strings.Split(path, "/"); stored[path] == nil && len(parts) > 2 && (parts[2] == "namespaces" || parts[2] == "cluster") {
			kinds[parts[1]]++
		}
		stored[path] = content
	})
	require.Equal(t, len(volumes), kinds["volumesnapshots.snapshot.storage.k8s.io"])
	require.Equal(t, 1, kinds["volumesnapshotclasses.snapshot.storage.k8s.io"])
	require.Equal(t, len(volumes), kinds["volumesnapshotcontents.snapshot.storage.k8s.io"])
	for path, content := range stored {
		if !strings.HasPrefix(path, "resources/volumesnapshotcontents.snapshot.storage.k8s.io/cluster/") {
			continue
		}
		var vsc snapshotv1.VolumeSnapshotContent
		require.NoError(t, json.Unmarshal(content, &vsc))
		require.Equal(t, handles[*vsc.Spec.Source.VolumeHandle], *vsc.Status.SnapshotHandle)
		require.True(t, *vsc.Status.ReadyToUse, "it is stored again once it is ready")
		require.Equal(t, name, vsc.Labels[velerov1.LabelBackupName])
		require.Equal(t, snapshotv1.VolumeSnapshotContentDelete, vsc.Spec.DeletionPolicy)
	}
	var infos []map[string]any
	require.NoError(t, json.Unmarshal([]byte(b.readFile(t, name, "-volumeinfo.json.gz")), &infos))
	require.Len(t, infos, len(volumes))
	for _, info := range infos {
		require.Equal(t, "CSISnapshot", info["backupMethod"], info)
		require.Equal(t, "succeeded", info["result"], info)
		snapshot, _ := info["csiSnapshotInfo"].(map[string]any)
		require.Equal(t, handles[volumes[info["pvcName"].(string)]], snapshot["snapshotHandle"], info)
	}
	require.Contains(t, b.readFile(t, name, "-itemoperations.json.gz"), `"backupItemAction":"velero.io/csi-volumesnapshot-backupper"`)
}

// The writer stands still between the hooks: all volumes of the Pod are cut at one moment.
func (b *bed) testQuiesced(t *testing.T) {
	const name, claims = "quiesced", 3
	volumes := b.createPod(t, name, claims, map[string]string{
		"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw",
	})
	w := b.startWriter(t, volumes)
	b.apps.registerWriter(name, w)
	b.Backup(t, name, b.bucket, name)
	backup := b.BackupCompletes(t, name)
	require.Equal(t, &velerov1.HookStatus{HooksAttempted: 2}, backup.Status.HookStatus)
	snapshots := b.driverSnapshots(volumes)
	require.Len(t, snapshots, claims)
	for _, s := range snapshots {
		require.True(t, hasFile(t, s.Dir, "frozen"), "the cut is after the pre hook")
		require.False(t, hasFile(t, s.Dir, "thawed"), "the cut is before the post hook")
		require.Equal(t, numberInFile(t, snapshots[0].Dir, "first"), numberInFile(t, s.Dir, "first"))
		require.Equal(t, numberInFile(t, snapshots[0].Dir, "first"), numberInFile(t, s.Dir, "second"))
		w.awaitLargerNumber(t, s.Volume, numberInFile(t, s.Dir, "second"))
	}
	b.DeleteBackup(t, name)
	b.requireClean(t, volumes, 0, name)
}

func (b *bed) runnerDies(t *testing.T) {
	const name, claims = "killed", 3
	volumes := b.createPod(t, name, claims, nil)
	b.setBehaviour(volumes, directorydriver.Behaviour{Hang: true})
	before := b.driver.Taken()
	b.Backup(t, name, b.bucket, name)
	require.Eventually(t, func() bool { return len(b.snapshotObjects(t, name)) == 2*claims }, site.Patience, site.Look, "snapshots of all claims of the Pod are begun")
	b.Kill(t, "backup-runner")
	b.setBehaviour(volumes, directorydriver.Behaviour{})
	backup := b.BackupCompletes(t, name)
	require.Equal(t, claims, backup.Status.CSIVolumeSnapshotsCompleted)
	require.Equal(t, claims, b.driver.Taken()-before)
	b.requireClean(t, volumes, claims, name)
	b.DeleteBackup(t, name)
	b.requireClean(t, volumes, 0, name)
}

func (b *bed) testCancelled(t *testing.T) {
	const name = "cancelled"
	volumes := b.createPod(t, name, 1, nil)
	b.setBehaviour(volumes, directorydriver.Behaviour{NotReady: true})
	b.Backup(t, name, b.bucket, name)
	before := b.awaitWaiting(t, name)
	require.Len(t, b.driverSnapshots(volumes), 1)
	cancelled := before.DeepCopy()
	metav1.SetMetaDataAnnotation(&cancelled.ObjectMeta, "holdfast.io/cancel", "alice")
	require.NoError(t, b.Client.Patch(t.Context(), cancelled, client.MergeFrom(before)))
	require.Equal(t, velerov1.BackupPhaseFailed, b.BackupEnds(t, name).Status.Phase)
	b.requireClean(t, volumes, 0, name)
}
