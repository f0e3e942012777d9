package finalize_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// requests are a cluster with PodVolumeBackups.
type requests struct {
	list      []velerov1.PodVolumeBackup
	uploads   []v2alpha1.DataUpload
	lists     int
	cancelled []string // reasons
}

func (r *requests) ListBackups(context.Context, map[string]string) ([]velerov1.PodVolumeBackup, error) {
	r.lists++
	return slices.Clone(r.list), nil
}

func (r *requests) ListUploads(context.Context, map[string]string) ([]v2alpha1.DataUpload, error) {
	return slices.Clone(r.uploads), nil
}

func (r *requests) CancelBackups(_ context.Context, b *velerov1.Backup, reason string) error {
	r.cancelled = append(r.cancelled, b.Name+": "+reason)
	return nil
}

// newRequest is a PodVolumeBackup of the backup, of Pod a/p; with a claim its volume is pv-<claim>.
func newRequest(volume, claim string, status velerov1.PodVolumeBackupStatus) velerov1.PodVolumeBackup {
	pvb := velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b-" + volume, Labels: map[string]string{"velero.io/backup-uid": "u"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}, Status: status}
	pvb.Spec = velerov1.PodVolumeBackupSpec{Node: "n1", Volume: volume, UploaderType: "kopia"}
	pvb.Spec.Pod.Namespace, pvb.Spec.Pod.Name = "a", "p"
	if claim != "" {
		pvb.Annotations = map[string]string{velerov1.AnnotationPVCName: claim, podvolume.AnnotationVolume: `{"name":"pv-` + claim + `","reclaimPolicy":"Delete"}`}
	}
	return pvb
}

var takenData = velerov1.PodVolumeBackupStatus{Phase: "Completed", SnapshotID: "k1", IncrementalBytes: 3, Progress: velerov1.DataMoveOperationProgress{TotalBytes: 7, BytesDone: 7}}

// newRequestedState is a backup with the operation of Pod a/p, which ended with failure, and these
// records about volumes.
func newRequestedState(t *testing.T, store objectstore.Store, cluster *requests, failure string, volumes ...checkpoint.VolumeInfo) *finalize.State {
	t.Helper()
	return newOperationState(t, store, cluster, operation.Operation{Action: podvolume.NameBackup, Kind: "BackupItemActionV2", ID: podvolume.BackupOperationID(podvolume.Hash("key"), len(cluster.list)),
		Item: operation.Resource{Resource: "pods", Namespace: "a", Name: "p"}}, failure, volumes...)
}

// newOperationState is a backup with an operation.
func newOperationState(t *testing.T, store objectstore.Store, cluster *requests, op operation.Operation, failure string, volumes ...checkpoint.VolumeInfo) *finalize.State {
	t.Helper()
	s := newState(t, store, &bytes.Buffer{})
	s.PodVolumes = cluster
	s.Collect = func(ctx context.Context) (checkpoint.Composition, error) {
		log, err := checkpoint.Open(ctx, store, "b", "u", 1)
		require.NoError(t, err)
		key, err := log.Append(ctx, checkpoint.Record{Volumes: volumes})
		require.NoError(t, err)
		of := operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}
		_, err = operation.Seal(ctx, store, operation.List{Job: of, Epoch: 1, Operations: []operation.Operation{op}})
		require.NoError(t, err)
		ends, err := operation.Open(ctx, store, of)
		require.NoError(t, err)
		require.NoError(t, ends.Append(ctx, operation.Event{Operation: 0, Time: time.Unix(1700000000, 0), End: &operation.End{Error: failure}}))
		return checkpoint.RecordComposition(ctx, store, checkpoint.Composition{
			Backup: "b", UID: "u", Epoch: 1, Phase: velerov1.BackupPhaseCompleted, Checkpoints: []string{key}, Operations: []operation.Operation{op}})
	}
	return s
}

// readZipped reads a file of the backup.
func readZipped[T any](t *testing.T, store *memstore.Store, key string) (out T) {
	t.Helper()
	data, ok := store.Bytes(key)
	require.True(t, ok, key)
	unzip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(unzip).Decode(&out))
	return out
}

// A backup lists its requests and their volumes as Velero does; what records say of the claims only
// fills in.
func TestABackupListsItsRequests(t *testing.T) {
	store := memstore.New()
	cluster := &requests{list: []velerov1.PodVolumeBackup{newRequest("scratch", "", takenData), newRequest("data", "c", takenData), newRequest("shared", "s", takenData)}}
	s := newRequestedState(t, store, cluster, "",
		checkpoint.VolumeInfo{PVCNamespace: "a", PVCName: "c", PVName: "pv-c", Pending: true},
		checkpoint.VolumeInfo{PVCNamespace: "a", PVCName: "c", PVName: "pv-c", Method: checkpoint.MethodPodVolume, Result: checkpoint.Failed},
		checkpoint.VolumeInfo{PVCNamespace: "a", PVCName: "s", PVName: "pv-s", Skipped: true, SkippedReason: checkpoint.ReasonByChoice},
		checkpoint.VolumeInfo{PVCNamespace: "a", PVCName: "gone", PVName: "pv-gone", Method: checkpoint.MethodPodVolume, Result: checkpoint.Failed},
		checkpoint.VolumeInfo{PVCNamespace: "a", PVCName: "other", PVName: "pv-other", Skipped: true, SkippedReason: checkpoint.ReasonByChoice})
	require.NoError(t, s.Run(t.Context(), finalize.Backup()))
	require.Equal(t, velerov1.BackupPhaseCompleted, s.Final.Status.Phase)

	listed := readZipped[[]map[string]any](t, store, layout.BackupPodVolumeBackups("b"))
	require.Len(t, listed, 3)
	require.Equal(t, []any{"velero.io/v1", "PodVolumeBackup"}, []any{listed[0]["apiVersion"], listed[0]["kind"]})
	require.NotContains(t, listed[0]["metadata"], "managedFields")

	infos := readZipped[[]checkpoint.VolumeInfo](t, store, layout.BackupVolumeInfo("b"))
	results := map[string]string{}
	for _, i := range infos {
		results[i.PVCName] += i.Method + " " + i.Result
	}
	require.Equal(t, map[string]string{"": "PodVolumeBackup succeeded", "c": "PodVolumeBackup succeeded", "s": "PodVolumeBackup succeeded", "gone": "PodVolumeBackup failed", "other": " "}, results)
	i := slices.IndexFunc(infos, func(i checkpoint.VolumeInfo) bool { return i.PVCName == "c" })
	require.Equal(t, &checkpoint.PodVolumeInfo{Handle: "k1", Size: 7, Incremental: 3, Uploader: "kopia", Volume: "data", PodName: "p", PodNamespace: "a", Node: "n1", Phase: "Completed"}, infos[i].PodVolume)
	require.Equal(t, "pv-c Delete", infos[i].PVName+" "+infos[i].Volume.ReclaimPolicy)
}

// A moved volume is described by its DataUpload as it is once its operation has ended.
func TestABackupDescribesMovedVolumes(t *testing.T) {
	store := memstore.New()
	recorded, err := checkpoint.VolumeOfMoved([]byte(`{"metadata":{"name":"c","namespace":"a","uid":"cu"},"spec":{"volumeName":"pv-c"}}`), "u")
	require.NoError(t, err)
	upload := v2alpha1.DataUpload{Status: v2alpha1.DataUploadStatus{Phase: "Completed", SnapshotID: "k1"}}
	upload.Labels = map[string]string{velerov1.LabelAsyncOperation: "du-u.cu"}
	op := operation.Operation{Action: podvolume.NameUpload, Kind: "BackupItemActionV2", ID: "du-u.cu", Item: operation.Resource{Resource: "persistentvolumeclaims", Namespace: "a", Name: "c"}}
	s := newOperationState(t, store, &requests{uploads: []v2alpha1.DataUpload{upload}}, op, "", recorded)
	require.NoError(t, s.Run(t.Context(), finalize.Backup()))
	require.Equal(t, velerov1.BackupPhaseCompleted, s.Final.Status.Phase)
	infos := readZipped[[]checkpoint.VolumeInfo](t, store, layout.BackupVolumeInfo("b"))
	require.Len(t, infos, 1)
	require.Equal(t, []any{"c", "pv-c", checkpoint.Succeeded, true, "k1"}, []any{infos[0].PVCName, infos[0].PVName, infos[0].Result, infos[0].DataMoved, infos[0].Movement.Handle})
}

// Each volume that is not in the backup is one error that says why; one that is, is none.
func TestEachVolumeThatFailedIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		list    []velerov1.PodVolumeBackup
		failure string
		want    map[string]string // reasons by message
	}{
		"two of three": {
			[]velerov1.PodVolumeBackup{newRequest("full", "", velerov1.PodVolumeBackupStatus{Phase: "Failed", Message: "no space"}), newRequest("good", "", takenData),
				newRequest("slow", "", velerov1.PodVolumeBackupStatus{Phase: "InProgress"})},
			"timed out after 4h0m0s",
			map[string]string{"volume full: the file-system backup failed (PodVolumeBackup b-full)": "no space", "volume slow: the file-system backup failed (PodVolumeBackup b-slow)": "timed out after 4h0m0s"},
		},
		"removed requests": {nil, "1 of 1 requests were removed before they ended",
			map[string]string{`operation "` + podvolume.BackupOperationID(podvolume.Hash("key"), 0) + `" of action holdfast.io/pod-volume-backup failed`: "1 of 1 requests were removed before they ended"}},
		"none": {[]velerov1.PodVolumeBackup{newRequest("good", "", takenData)}, "", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			s := newRequestedState(t, store, &requests{list: tt.list}, tt.failure)
			require.NoError(t, s.Run(t.Context(), finalize.Backup()))
			require.Equal(t, len(tt.want), s.Final.Status.Errors)
			results, err := json.Marshal(readZipped[map[string]any](t, store, layout.BackupResults("b")))
			require.NoError(t, err)
			for message, reason := range tt.want {
				quoted, err := json.Marshal(message)
				require.NoError(t, err)
				require.Contains(t, string(results), string(quoted[1:len(quoted)-1]))
				require.Contains(t, string(results), reason)
			}
		})
	}
}

// The list is fixed with the first holder: its successor stores the same files, whatever became of the
// requests since.
func TestASuccessorFollowsTheListOfRequests(t *testing.T) {
	store := memstore.New()
	cluster := &requests{list: []velerov1.PodVolumeBackup{newRequest("data", "c", takenData)}}
	s := newRequestedState(t, store, cluster, "")
	store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && key == layout.BackupMetadata("b") {
			return objectstore.ErrAccess
		}
		return nil
	})
	require.ErrorIs(t, s.Run(t.Context(), finalize.Backup()), objectstore.ErrAccess)
	store.Inject(nil)
	cluster.list = nil
	successor := newRequestedState(t, store, cluster, "")
	require.NoError(t, successor.Run(t.Context(), finalize.Backup()))
	require.Equal(t, velerov1.BackupPhaseCompleted, successor.Final.Status.Phase)
	require.Equal(t, 1, cluster.lists)
	require.Len(t, readZipped[[]any](t, store, layout.BackupPodVolumeBackups("b")), 1)
}

// A backup of many Pods ends as one of a few.
func TestABackupOfManyVolumesListsItsRequests(t *testing.T) {
	store := memstore.New()
	cluster := &requests{}
	for i := range 1000 {
		cluster.list = append(cluster.list, newRequest(fmt.Sprintf("v%03d", i), fmt.Sprintf("c%03d", i), takenData))
	}
	s := newRequestedState(t, store, cluster, "")
	require.NoError(t, s.Run(t.Context(), finalize.Backup()))
	require.Equal(t, velerov1.BackupPhaseCompleted, s.Final.Status.Phase)
	require.Len(t, readZipped[[]any](t, store, layout.BackupPodVolumeBackups("b")), 1000)
}

// A list that another backup left under the name is not this backup's.
func TestAListOfAnotherBackupIsRefused(t *testing.T) {
	store := memstore.New()
	foreign := newRequest("data", "c", takenData)
	foreign.Labels["velero.io/backup-uid"] = "other"
	s := newRequestedState(t, store, &requests{list: []velerov1.PodVolumeBackup{foreign}}, "")
	require.ErrorContains(t, s.Run(t.Context(), finalize.Backup()), "PodVolumeBackup b-data is of another backup")
}

// A backup that fails cancels its requests, also those that no record names.
func TestAFailedBackupCancelsItsRequests(t *testing.T) {
	cluster := &requests{}
	s := newState(t, newBackupBucket(t), &bytes.Buffer{})
	s.PodVolumes = cluster
	failBackup(t, s)
	require.Equal(t, []string{"b: the backup failed: no disk"}, cluster.cancelled)
}

// Without requests the cluster is not asked, and the file is as Velero has it.
func TestABackupWithoutRequests(t *testing.T) {
	store := memstore.New()
	cluster := &requests{list: []velerov1.PodVolumeBackup{newRequest("data", "c", takenData)}}
	s := newCollectibleState(t, store)
	s.PodVolumes = cluster
	require.NoError(t, s.Run(t.Context(), finalize.Backup()))
	require.Zero(t, cluster.lists)
	require.Nil(t, readZipped[any](t, store, layout.BackupPodVolumeBackups("b")))
}
