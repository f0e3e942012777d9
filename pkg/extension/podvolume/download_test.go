package podvolume_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
)

func downloading() (*podvolume.RestoreJob, *podvolume.MovedVolume) {
	upload := &v2alpha1.DataUpload{}
	upload.Spec.SourceNamespace, upload.Spec.SourcePVC = "a", "data"
	upload.Status = v2alpha1.DataUploadStatus{SnapshotID: "k", NodeOS: "linux", Progress: velerov1.DataMoveOperationProgress{TotalBytes: 9, BytesDone: 9}}
	return &podvolume.RestoreJob{Name: "r", UID: "uid-b", Namespace: "velero", Location: "default", Settings: map[string]string{"WriteSparseFiles": "true"}},
		&podvolume.MovedVolume{Claim: types.NamespacedName{Namespace: "b", Name: "data"}, ClaimUID: "uid-data", Upload: upload, Timeout: time.Minute}
}

func TestTheOperationOfADownload(t *testing.T) {
	api, clock := newAPI(t)
	job, volume := downloading()
	dd := job.Download(volume)
	require.Equal(t, dd, job.Download(volume), "each attempt makes the same")
	require.NoError(t, api.Client.Create(t.Context(), dd))
	clock.SetTime(dd.CreationTimestamp.Time)
	b := &operationBed{API: api, clock: clock, op: action.Operation{Action: podvolume.NameDownload, ID: "dd-uid-b.uid-data"}}
	require.Empty(t, b.progress(t).Err)

	set := func(phase v2alpha1.DataMovePhase, message string) action.Progress {
		dd.Status.Phase, dd.Status.Message, dd.Status.Progress = phase, message, velerov1.DataMoveOperationProgress{TotalBytes: 9, BytesDone: 3}
		require.NoError(t, api.Client.Update(t.Context(), dd))
		b.clock.Step(time.Second)
		return b.progress(t)
	}
	p := set("", "waits for Pod b/web-0")
	require.Equal(t, []any{false, int64(3), int64(9), "Bytes", "; waits for Pod b/web-0"}, []any{p.Done, p.Completed, p.Total, p.Units, p.Description})
	require.Equal(t, "InProgress", set("InProgress", "").Description)
	_, err := b.cancel(t, `{"metadata":{"name":"b","uid":"other"}}`)
	require.Error(t, err, "it is another restore's")
	accepted, err := b.cancel(t, jobJSON)
	require.NoError(t, err)
	require.True(t, accepted)
	require.NoError(t, api.Reader.Get(t.Context(), types.NamespacedName{Namespace: "velero", Name: dd.Name}, dd))
	require.True(t, dd.Spec.Cancel)
	require.Equal(t, "claim b/data: canceled: the operation was cancelled", set("Canceled", "").Err)
	require.Equal(t, "claim b/data: no room", set("Failed", "no room").Err)
	p = set("Completed", "")
	require.True(t, p.Done)
	require.Empty(t, p.Err)
	require.NoError(t, api.Client.Delete(t.Context(), dd))
	b.clock.Step(time.Second)
	require.Equal(t, "1 of 1 requests were removed before they ended", b.progress(t).Err)
}

func TestTheOperationOfAnUpload(t *testing.T) {
	api, clock := newAPI(t)
	id := podvolume.UploadOperationID("uid-b", "uid-data")
	du := &v2alpha1.DataUpload{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b-1", Labels: map[string]string{
		velerov1.LabelBackupUID: "uid-b", velerov1.LabelAsyncOperation: id}}}
	du.Spec.SourceNamespace, du.Spec.SourcePVC = "a", "data"
	require.NoError(t, api.Client.Create(t.Context(), du))
	clock.SetTime(du.CreationTimestamp.Time)
	b := &operationBed{API: api, clock: clock, op: action.Operation{Action: podvolume.NameUpload, ID: id}}
	require.False(t, b.progress(t).Done)
	b.clock.SetTime(du.CreationTimestamp.Add(podvolume.PrepareTimeout))
	require.Equal(t, "claim a/data: no volume-mover has accepted the request in 30m", b.progress(t).Err)
	du.ResourceVersion, du.Spec.Cancel, du.Status.Phase = "", true, v2alpha1.DataMovePhase(velerov1.PodVolumePhaseCompleted)
	require.NoError(t, api.Client.Update(t.Context(), du))
	b.clock.Step(time.Second)
	require.Equal(t, "claim a/data: it completed without a snapshot", b.progress(t).Err)

	for _, id := range []string{"", "x", "dd-uid-b.uid-data", "du-a=b", "du-" + strings.Repeat("a", 64)} {
		b.op.ID = id
		_, err := (&podvolume.Operations{API: b.API}).Progress(t.Context(), b.op, []byte(jobJSON))
		require.ErrorIs(t, err, action.ErrUnknownOperation, id)
	}
}

// Identifiers and the value of the selector are labels, however long the names are.
func TestNamesOfADownloadAreLabels(t *testing.T) {
	job, volume := downloading()
	job.UID, volume.ClaimUID = "1b671a64-40d5-491e-99b0-da01ff1f3341", "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
	volume.Claim = types.NamespacedName{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("c", 250)}
	dd := job.Download(volume)
	require.Regexp(t, `^dd-1b671a64-40d5-491e-99b0-da01ff1f3341\.9b1deb4d-3b7d-4ba[0-9a-f]{6}$`, dd.Labels[velerov1.LabelAsyncOperation])
	first := job.SelectorValue(volume)
	require.Empty(t, validation.IsValidLabelValue(first))
	job.UID = "another"
	require.NotEqual(t, first, job.SelectorValue(volume), "a volume of an earlier restore does not match")
	require.NotEqual(t, dd.Name, job.Download(volume).Name)
}
