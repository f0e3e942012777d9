package podvolume

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// notTaken has an opt-out be obeyed, and whatever else is not taken be an error that says why.
func (b *bed) notTaken(t *testing.T) {
	t.Run("opt-out", func(t *testing.T) {
		const name = "choosy"
		b.createApplication(t, name, map[string]string{"backup.velero.io/backup-volumes-excludes": "scratch"})
		b.createBackup(t, name)
		b.BackupCompletes(t, name)
		b.requireRecorded(t, name, "data")
	})
	t.Run("a Pod that does not run", func(t *testing.T) {
		const name = "pending"
		b.Namespace(t, name)
		pod := newPod(name, nil)
		pod.Spec.Volumes = pod.Spec.Volumes[1:2] // the emptyDir
		pod.Spec.Containers[0].VolumeMounts = pod.Spec.Containers[0].VolumeMounts[1:2]
		pod.Spec.NodeSelector = map[string]string{"no": "node"}
		require.Eventually(t, func() bool { return b.Client.Create(t.Context(), pod.DeepCopy()) == nil }, site.Patience, site.Look, "the account is there")
		b.createBackup(t, name)
		b.requireError(t, name, "scratch", "not scheduled")
		require.Empty(t, b.requests(t, name))
	})
	t.Run("a directory", func(t *testing.T) {
		const name = "local"
		bucket, dir := site.FileBucket(t, "files")
		b.ReachFiles(t, dir, bucket)
		b.createApplication(t, name, nil)
		s3 := b.bucket
		defer func() { b.bucket = s3 }()
		b.bucket = bucket
		b.createBackup(t, name, func(s *velerov1.BackupSpec) { s.StorageLocation = bucket.Location })
		b.requireError(t, name, "data", "no Pod can mount")
		for volume, p := range b.requests(t, name) {
			require.Equal(t, velerov1.PodVolumePhaseFailed, p.Status.Phase, volume)
		}
		b.requireNoMovers(t)
	})
}

// requireError checks that a backup ends PartiallyFailed with errors that have the words.
func (b *bed) requireError(t *testing.T, backup string, words ...string) {
	t.Helper()
	ended := b.BackupEnds(t, backup)
	results := string(b.bucket.ReadZipped(t, layout.BackupResults(backup)))
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, ended.Status.Phase, "%s %s", ended.Status.FailureReason, results)
	for _, word := range words {
		require.Contains(t, results, word)
	}
}

// killedMeanwhile kills the runner, which waits with the post hook, and the controller while the volumes are being
// moved: their successors go on with the same requests.
func (b *bed) killedMeanwhile(t *testing.T) {
	const name = "disturbed"
	b.createApplication(t, name, map[string]string{postHook: "thaw"})
	b.movers.Hold()
	before := b.movers.Held()
	b.createBackup(t, name)
	require.Eventually(t, func() bool { return b.movers.Held()-before == 2 }, site.Patience, site.Look, "both movers run")
	first := b.requests(t, name)
	require.Len(t, first, 2)
	require.Empty(t, b.apps.commandsIn(name), "the hook waits for the data")
	for _, service := range []string{"backup-runner", "volume-mover"} {
		b.Kill(t, service)
	}
	b.movers.Release()
	b.BackupCompletes(t, name)
	require.Equal(t, []string{"thaw"}, b.apps.commandsIn(name))
	b.requireRecorded(t, name, "data", "scratch")
	for volume, p := range b.requests(t, name) {
		require.Equal(t, first[volume].UID, p.UID, "volume %s is moved once", volume)
	}
	b.requireNoMovers(t)
}

// cancelled has a backup end with its movers, and the hook run.
func (b *bed) cancelled(t *testing.T) {
	const name = "unwanted"
	b.createApplication(t, name, map[string]string{postHook: "thaw"})
	b.movers.Hold()
	defer b.movers.Release()
	before := b.movers.Held()
	b.createBackup(t, name)
	require.Eventually(t, func() bool { return b.movers.Held()-before == 2 }, site.Patience, site.Look, "both movers run")
	_, err := queuev1.NewQueueServiceClient(b.Dial(t, "queue-scheduler")).CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: name, RequestedBy: "alice"})
	require.NoError(t, err)
	backup := b.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase)
	require.Contains(t, backup.Status.FailureReason, "cancel")
	require.Eventually(t, func() bool { return len(b.apps.commandsIn(name)) == 1 }, site.Patience, site.Look, "the hook runs")
	require.Eventually(t, func() bool {
		for _, p := range b.requests(t, name) {
			if p.Status.Phase != velerov1.PodVolumePhaseCanceled {
				return false
			}
		}
		return true
	}, site.Patience, site.Look, "the requests are Canceled")
	b.requireNoMovers(t)
}
