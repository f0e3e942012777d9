//go:build velero

package datamovement

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// Two clusters share a bucket: in one Holdfast moves the data of snapshots, of files and of a block device, in the other Velero's
// node-agent does, for the requests of Holdfast first and of Velero's server then. Each restores what the other stored, also after
// either has maintained the repositories.
func TestVeleroDataMovement(t *testing.T) {
	s3 := testbed.StartS3T(t)
	bucket := site.S3Bucket(t, s3, "default")
	own := startBed(t, s3, bucket)
	theirs := startBed(t, s3, bucket, "--volume-mover=velero")
	own.describe, theirs.describe = volumefiles.DescribeKept, volumefiles.DescribeKept
	volumefiles.SharePassword(t, own.Site, theirs.Site)
	agent := moverpods.StartAgent(t, theirs.Site, theirs.movers)

	want := map[string]map[string]map[string]string{}
	for name, b := range map[string]*bed{"ours": own, "theirs": theirs} {
		want[name] = b.createClaims(t, name, "data", csistorage.Late, disk)
		b.runPod(t, name, csistorage.Late)
		b.createBackup(t, name, name)
		b.BackupCompletes(t, name)
		b.requireNothingLeft(t)
		b.requireStored(t, name, want[name])
	}
	exchange := func(t *testing.T, suffix string) {
		for name, b := range map[string]*bed{"ours": theirs, "theirs": own} {
			b.awaitSynced(t, name)
			b.Restore(t, name+suffix, name, name, name+suffix)
			b.addConsumer(t, name+suffix, csistorage.Late)
			b.requireRestored(t, name+suffix, name+suffix, want[name])
			b.requireNothingLeft(t)
		}
	}
	t.Run("exchanged", func(t *testing.T) { exchange(t, "-copy") })
	t.Run("maintained", func(t *testing.T) {
		for name := range want {
			require.Empty(t, volumefiles.Maintain(t, own.Site, bucket, name))
			agent.Maintain(t, name, bucket.Location)
		}
		exchange(t, "-later")
	})
	t.Run("deleted", func(t *testing.T) { own.deletesTheirs(t, theirs) })
	t.Run("Velero's server", func(t *testing.T) {
		theirs.startVelero(t)
		exchangeWithServer(t, own, theirs)
		t.Run("deletes ours", func(t *testing.T) { theirs.deletesOurs(t, own, "both-ours") })
	})
}

// deletesTheirs has the data that Velero's node-agent stored go with the backup.
func (b *bed) deletesTheirs(t *testing.T, theirs *bed) {
	uploads := theirs.uploads(t, "theirs")
	require.NotEmpty(t, uploads)
	b.DeleteBackup(t, "theirs")
	for _, u := range uploads {
		require.Contains(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, "theirs", u.Status.SnapshotID), "the repository does not have the snapshot")
	}
}

// deletesOurs has the data that Holdfast's movers stored go with the backup that Velero's server deletes.
func (b *bed) deletesOurs(t *testing.T, own *bed, backup string) {
	files := &velerov1.PodVolumeBackupList{}
	require.NoError(t, own.Client.List(t.Context(), files, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelBackupName: backup}))
	require.Len(t, files.Items, 1)
	snapshots := []string{own.uploads(t, backup)["data"].Status.SnapshotID, files.Items[0].Status.SnapshotID}
	for _, id := range snapshots {
		require.Empty(t, volumefiles.RestoreSnapshot(t, own.Site, own.bucket, backup, id))
	}
	b.DeleteBackup(t, backup)
	for _, id := range snapshots {
		require.Contains(t, volumefiles.RestoreSnapshot(t, own.Site, own.bucket, backup, id), "the repository does not have the snapshot")
	}
}

func (b *bed) awaitSynced(t *testing.T, backup string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: backup}, &velerov1.Backup{}) == nil
	}, site.Patience, site.Look, "backup %s is found in the bucket", backup)
}

// startVelero has Velero's server take the place of the services.
func (b *bed) startVelero(t *testing.T) {
	t.Helper()
	b.Fleet.Stop()
	testbed.CreateVeleroDeployment(t, b.Cluster, site.Server)
	loc := &velerov1.BackupStorageLocation{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: b.bucket.Location}, loc))
	beside := []string{strings.TrimPrefix(b.Cluster.RestConfig().Host, "https://"), strings.TrimPrefix(loc.Spec.Config["s3Url"], "http://")}
	testbed.StartVeleroT(t, testbed.VeleroServer{
		Cluster: b.Cluster, Namespace: site.Server, Location: b.bucket.Location, Dir: t.TempDir(), Beside: beside,
		Flags: []string{feature, "--item-operation-sync-frequency=1s"},
	})
}

// exchangeWithServer has both servers make a backup with a moved snapshot and a file-system backup, and restore that of the other.
func exchangeWithServer(t *testing.T, own, theirs *bed) {
	want := map[string]map[string]string{}
	for name, b := range map[string]*bed{"both-ours": own, "both-theirs": theirs} {
		want[name] = b.createBoth(t, name)
		b.createBackup(t, name, name)
		backup := b.BackupEnds(t, name)
		require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s %s", backup.Status.FailureReason, b.bucket.ReadZipped(t, layout.BackupLog(name)))
		b.requireStored(t, name, map[string]map[string]string{"data": want[name]})
	}
	for name, b := range map[string]*bed{"both-ours": theirs, "both-theirs": own} {
		b.awaitSynced(t, name)
		require.Equal(t, want[name], b.restoreBoth(t, name, name+"-copy"), "%s", name)
		b.requireNothingLeft(t)
	}
}

// createBoth makes a namespace with a claim, whose snapshot is moved, and a Pod with an emptyDir, whose files are taken, and returns what
// is in both.
func (b *bed) createBoth(t *testing.T, namespace string) map[string]string {
	t.Helper()
	claims := b.createClaims(t, namespace, "data")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Annotations: map[string]string{velerov1.AnnotationBackupVolumes: "scratch"}},
		Spec: corev1.PodSpec{
			Volumes:    []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Containers: []corev1.Container{{Name: "main", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}},
		},
	}
	require.Eventually(t, func() bool { return b.node.Run(t.Context(), pod) == nil }, site.Patience, site.Look, "the Pod runs")
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	dirs, err := b.movers.MountVolumes(t.Context(), pod)
	require.NoError(t, err)
	volumefiles.Write(t, dirs["scratch"], "scratch of "+namespace)
	return joinVolumes(claims["data"], b.describe(t, dirs["scratch"]))
}

// joinVolumes names the entries of a claim and of an emptyDir by their volumes.
func joinVolumes(data, scratch map[string]string) map[string]string {
	all := map[string]string{}
	for name, entry := range maps.All(data) {
		all["data/"+name] = entry
	}
	for name, entry := range maps.All(scratch) {
		all["scratch/"+name] = entry
	}
	return all
}

// restoreBoth restores such a backup into another namespace, and returns what is in the claim and the emptyDir then.
func (b *bed) restoreBoth(t *testing.T, backup, namespace string) map[string]string {
	t.Helper()
	b.Restore(t, namespace, backup, backup, namespace)
	pod := &corev1.Pod{}
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, pod) == nil
	}, site.Patience, site.Look, "the Pod is restored")
	pod, err := b.node.Bind(t.Context(), namespace, "web")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), site.Patience)
	defer cancel()
	require.NoError(t, b.movers.WaitRestored(ctx, pod))
	ended := b.RestoreEnds(t, namespace)
	require.Equal(t, velerov1.RestorePhaseCompleted, ended.Status.Phase, "%s", b.bucket.ReadZipped(t, layout.RestoreResults(namespace)))
	dirs, err := b.movers.MountVolumes(t.Context(), pod)
	require.NoError(t, err)
	return joinVolumes(b.describe(t, b.directory(t, namespace, "data")), b.describe(t, dirs["scratch"]))
}
