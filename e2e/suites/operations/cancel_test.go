package operations

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// testCancelled stops a backup whose operations make no progress: each is asked to cancel once.
func (b *bed) testCancelled(t *testing.T) {
	const name = "cancelled"
	b.Namespace(t, name)
	endless := operationOrder{Seconds: 1e6}
	b.createOwnObject(t, name, "one", endless)
	b.createOwnObject(t, name, "two", endless)
	b.createOwnObject(t, name, "stubborn", operationOrder{Seconds: 1e6, Cancel: refuses})
	b.createVendorObject(t, name, "three", endless)
	b.Backup(t, name, b.bucket, name)
	b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperations)
	b.EventsTell(t, "Backup "+name+" OperationStalled")
	_, err := b.queue.CancelBackup(t.Context(), &queuev1.CancelBackupRequest{Name: name, RequestedBy: "alice"})
	require.NoError(t, err)

	backup := b.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase)
	require.True(t, strings.HasPrefix(backup.Status.FailureReason, "cancelled by alice"), backup.Status.FailureReason)
	asked := b.calls.callsOf(t, "cancel", name)
	for _, w := range b.worksOf(t, name) {
		require.Len(t, asked[w.Spec.Item], 1, "%s is asked to cancel once", w.Spec.Item)
		require.Equal(t, w.Spec.Order.Cancel != refuses, w.Spec.Cancelled, w.Spec.Item)
	}
	require.Contains(t, b.readLog(t, name), "cancelled by alice")
	var committed velerov1.Backup
	require.NoError(t, json.Unmarshal(b.bucket.Read(t, "backups/"+name+"/velero-backup.json"), &committed))
	require.Equal(t, velerov1.BackupPhaseFailed, committed.Status.Phase)
	b.nothingLeft(t, backup)
}

// nothingLeft waits until nothing of a backup that has ended is in the queue, and no part of it or
// record about it in the bucket.
func (b *bed) nothingLeft(t *testing.T, backup *velerov1.Backup) {
	t.Helper()
	require.Eventually(t, func() bool {
		list := &corev1.ConfigMap{}
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: ledger.Name}, list))
		text, err := json.Marshal(list.Data)
		require.NoError(t, err)
		return !strings.Contains(string(text), string(backup.UID))
	}, site.Patience, site.Look, "%s leaves the queue", backup.Name)
	require.Eventually(t, func() bool {
		for _, key := range b.bucket.Keys(t) {
			if strings.HasPrefix(key, "backups/"+backup.Name+"/parts/") {
				return false
			}
		}
		return true
	}, site.Patience, site.Look, "the parts of %s go", backup.Name)
}
