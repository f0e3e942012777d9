package checkpoint_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

const movedClaim = `{"metadata":{"name":"db","namespace":"shop","uid":"claim"},"spec":{"volumeName":"pv-1"}}`

// Velero restores, describes and deletes moved data by these entries.
func TestTheEntryOfMovedData(t *testing.T) {
	ended := time.Unix(1_700_000_000, 0)
	newUpload := func(status v2alpha1.DataUploadStatus) *v2alpha1.DataUpload {
		u := &v2alpha1.DataUpload{Status: status}
		u.Annotations = map[string]string{csisnapshot.AnnotationVolume: `{"name":"pv-2","reclaimPolicy":"Retain"}`, "velero.io/csi-volumesnapshot-handle": "h"}
		u.Spec.CSISnapshot = &v2alpha1.CSISnapshotSpec{VolumeSnapshot: "vs", Driver: "d"}
		return u
	}
	done := v2alpha1.DataUploadStatus{Phase: "Completed", SnapshotID: "s", IncrementalBytes: 2, CompletionTimestamp: &metav1.Time{Time: ended}}
	done.Progress.TotalBytes = 7
	late, failed := done, done
	late.CompletionTimestamp = &metav1.Time{Time: ended.Add(time.Second)}
	failed.Phase = "Failed"
	for name, tc := range map[string]struct {
		upload         *v2alpha1.DataUpload
		end            operation.Phase
		result, handle string
		phase          v2alpha1.DataMovePhase
		volume         string
	}{
		"completed":                    {newUpload(done), operation.Completed, checkpoint.Succeeded, "s", "Completed", "pv-2"},
		"completed by another clock":   {newUpload(late), operation.Completed, checkpoint.Succeeded, "s", "Completed", "pv-2"},
		"something is missing of it":   {newUpload(failed), operation.Failed, checkpoint.Failed, "s", "Failed", "pv-2"},
		"final after its operation":    {newUpload(late), operation.Failed, checkpoint.Failed, "", "Failed", "pv-2"},
		"running beyond its operation": {newUpload(v2alpha1.DataUploadStatus{Phase: "Canceling"}), operation.Failed, checkpoint.Failed, "", "Failed", "pv-2"},
		"removed":                      {nil, operation.Failed, checkpoint.Failed, "", "Failed", "pv-1"},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := checkpoint.VolumeOfMoved([]byte(movedClaim), "backup")
			require.NoError(t, err)
			require.Equal(t, "du-backup.claim", i.Movement.OperationID)
			i.ConcludeMovement(tc.upload, &operation.State{Phase: tc.end, EndTime: ended})
			require.Equal(t, tc.result, i.Result)
			require.Equal(t, []any{"db", "shop", tc.volume, "CSISnapshot", true, false, false}, []any{i.PVCName, i.PVCNamespace, i.PVName, i.Method, i.DataMoved, i.LocalSnapshot, i.Skipped})
			require.Equal(t, []any{"velero", "kopia", tc.handle, tc.phase}, []any{i.Movement.DataMover, i.Movement.Uploader, i.Movement.Handle, i.Movement.Phase})
			if tc.handle != "" {
				require.Equal(t, []any{int64(7), int64(2), "vs", "h", "unknown", "unknown"}, []any{i.Movement.Size, i.Movement.Incremental, i.Movement.Snapshot, i.CSI.Handle, i.CSI.Content, i.CSI.OperationID})
				require.Equal(t, "Retain", i.Volume.ReclaimPolicy)
			}
		})
	}
	_, err := checkpoint.VolumeOfMoved([]byte("{"), "backup")
	require.Error(t, err)
}
