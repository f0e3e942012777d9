package podvolume

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
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
	release := b.holdMovers(t, 2, func() { b.createBackup(t, name) })
	first := b.requests(t, name)
	require.Len(t, first, 2)
	require.Empty(t, b.apps.commandsIn(name), "the hook waits for the data")
	for _, service := range []string{"backup-runner", "volume-mover"} {
		b.Kill(t, service)
	}
	release()
	b.BackupCompletes(t, name)
	require.Equal(t, []string{"thaw"}, b.apps.commandsIn(name))
	b.requireRecorded(t, name, "data", "scratch")
	for volume, p := range b.requests(t, name) {
		require.Equal(t, first[volume].UID, p.UID, "volume %s is moved once", volume)
	}
	b.requireNoMovers(t)
}

// anotherPassword has a repository that cannot be opened be an error, a state of the repository, and no lasting one.
func (b *bed) anotherPassword(t *testing.T) {
	const name = "choosy" // has a repository
	backUp := func(backup string) {
		b.createBackup(t, backup, func(s *velerov1.BackupSpec) { s.IncludedNamespaces = []string{name} })
	}
	phase := func() velerov1.BackupRepositoryPhase {
		repository := &velerov1.BackupRepository{}
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name + "-default-kopia"}, repository))
		return repository.Status.Phase
	}
	secret := &corev1.Secret{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: velerov1.RepositorySecret}, secret))
	own := secret.Data[velerov1.RepositoryPasswordKey]
	require.NotEqual(t, velerov1.DefaultRepositoryPassword, string(own))
	secret.Data[velerov1.RepositoryPasswordKey] = []byte(velerov1.DefaultRepositoryPassword)
	require.NoError(t, b.Client.Update(t.Context(), secret))
	b.Kill(t, "volume-mover")
	b.EventsTell(t, "Secret "+velerov1.RepositorySecret+" KnownPassword")
	backUp("wrong-password")
	b.requireError(t, "wrong-password", "data", "password")
	require.Equal(t, velerov1.BackupRepositoryPhaseNotReady, phase())

	secret.Data[velerov1.RepositoryPasswordKey] = own
	require.NoError(t, b.Client.Update(t.Context(), secret))
	backUp("right-password")
	b.BackupCompletes(t, "right-password")
	require.Equal(t, velerov1.BackupRepositoryPhaseReady, phase())
}
