package podvolume

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// deleted has the data of a backup go from the repository with the backup, and that of another one stay. While the
// repository cannot be opened, the backup stays and says so.
func (b *bed) deleted(t *testing.T) {
	const name, kept = "leaving", "staying"
	ends := b.startEnding(t, "never")
	b.createApplication(t, name, nil)
	b.createBackup(t, name)
	b.BackupCompletes(t, name)
	b.createBackup(t, kept, func(spec *velerov1.BackupSpec) { spec.IncludedNamespaces = []string{name} })
	b.BackupCompletes(t, kept)
	gone, stays := b.requests(t, name), b.requests(t, kept)
	require.Len(t, gone, 2)
	for _, p := range gone {
		require.Empty(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, name, p.Status.SnapshotID))
	}

	password := b.setPassword(t, "another")
	request := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: velerov1.DeleteBackupRequestSpec{BackupName: name}}
	require.NoError(t, b.Client.Create(t.Context(), request))
	require.Eventually(t, func() bool {
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKeyFromObject(request), request))
		return strings.Contains(strings.Join(request.Status.Errors, ""), "repository of namespace "+name+": wrong repository password")
	}, site.Patience, site.Look, "the request names the reason")
	backup := &velerov1.Backup{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, backup))
	require.Equal(t, velerov1.BackupPhaseDeleting, backup.Status.Phase)
	b.setPassword(t, password)
	require.NoError(t, b.Client.Delete(t.Context(), request)) // its next try is due later

	b.DeleteBackup(t, name)
	for _, p := range gone {
		require.Contains(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, name, p.Status.SnapshotID), "the repository does not have the snapshot")
	}
	for _, p := range stays {
		require.Empty(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, name, p.Status.SnapshotID))
	}
	require.Eventually(t, func() bool { return len(b.requests(t, name)) == 0 }, site.Patience, site.Look, "its requests are gone")
	require.Len(t, b.requests(t, kept), 2)
	b.requireMaintained(t, name)
	ends(t)
	for _, p := range stays {
		require.Empty(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, name, p.Status.SnapshotID))
	}
	b.requireNoMovers(t)
}

// startEnding has an empty repository of a namespace that does not exist be maintained. requireEnded waits until it is
// no more.
func (b *bed) startEnding(t *testing.T, namespace string) (requireEnded func(*testing.T)) {
	t.Helper()
	volumefiles.CreateRepository(t, b.Site, b.bucket, namespace)
	r := &velerov1.BackupRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: namespace + "-default-kopia"},
		Spec: velerov1.BackupRepositorySpec{
			VolumeNamespace: namespace, BackupStorageLocation: b.bucket.Location, RepositoryType: "kopia", MaintenanceFrequency: metav1.Duration{Duration: time.Second},
		},
		Status: velerov1.BackupRepositoryStatus{Phase: velerov1.BackupRepositoryPhaseReady},
	}
	require.NoError(t, b.Client.Create(t.Context(), r))
	return func(t *testing.T) {
		t.Helper()
		gone := func() bool { return apierrors.IsNotFound(b.Client.Get(t.Context(), client.ObjectKeyFromObject(r), r)) }
		require.Eventually(t, gone, site.Patience, site.Look, "its BackupRepository is gone")
	}
}

// requireMaintained has the repository of a namespace be due, and waits until it is maintained.
func (b *bed) requireMaintained(t *testing.T, namespace string) {
	t.Helper()
	r := &velerov1.BackupRepository{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: namespace + "-default-kopia"}}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKeyFromObject(r), r))
	require.Nil(t, r.Status.LastMaintenanceTime)
	r.Spec.MaintenanceFrequency.Duration = time.Second
	require.NoError(t, b.Client.Update(t.Context(), r))
	require.Eventually(t, func() bool {
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKeyFromObject(r), r))
		return len(r.Status.RecentMaintenance) > 0
	}, site.Patience, site.Look, "it is maintained")
	require.Empty(t, r.Status.RecentMaintenance[0].Message)
	require.NotNil(t, r.Status.LastMaintenanceTime)
	r.Spec.MaintenanceFrequency.Duration = time.Hour
	require.NoError(t, b.Client.Update(t.Context(), r))
}

// setPassword changes the Secret with the password of the repositories, and returns what it was.
func (b *bed) setPassword(t *testing.T, password string) (before string) {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: velerov1.RepositorySecret}, secret))
	before = string(secret.Data[velerov1.RepositoryPasswordKey])
	secret.Data[velerov1.RepositoryPasswordKey] = []byte(password)
	require.NoError(t, b.Client.Update(t.Context(), secret))
	return before
}
