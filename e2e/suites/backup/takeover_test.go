package backup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/backup-runner/app"
)

func TestBackupOfADeadRunnerIsTakenOver(t *testing.T) {
	b := newBed(t)
	b.createObject(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	require.NoError(t, seed.Bulk(t.Context(), b.RestConfig(), seed.BulkOptions{Namespace: shop, Count: 50, Size: 100}))
	backup := b.admitBackup(t, "orphan", velerov1.BackupSpec{IncludedNamespaces: []string{shop}}, shop)
	started := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
	require.NoError(t, kube.Update(t.Context(), b.client, b.client, backup, func(x *velerov1.Backup) error {
		x.Status.Phase, x.Status.StartTimestamp = velerov1.BackupPhaseInProgress, &started
		return claim.Set(x, claim.Claim{Owner: "backup-runner-that-died", Epoch: 4})
	}))
	short := func(c *app.Config) { c.ClaimTimeout = 5 * time.Second }
	b.startRunner(t, short)
	b.startRunner(t, short)
	b.awaitFinished(t, backup)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, readResults(t, b, "orphan"))
	require.True(t, started.Equal(backup.Status.StartTimestamp))
	c, _, err := claim.Parse(backup)
	require.NoError(t, err)
	require.Equal(t, int64(5), c.Epoch, "one of the two took it, once")
	require.Len(t, awaitSwept(t, b.objectPath("orphan")), 11, "nothing is left behind")
}
