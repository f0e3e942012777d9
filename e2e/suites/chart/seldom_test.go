package chart_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csicontrollers"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	deletionv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/deletion/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// What services do seldom is allowed too: to list where the API server does not send lists as watches,
// to submit and delete for callers, to note that a backup was verified, to remove requests that expired, to take
// over what another server wrote into the bucket, to end the jobs that it left, and to remove the snapshot that
// it left of a backup.
func TestServicesMayDoWhatTheySeldomDo(t *testing.T) {
	s := site.Start(t, site.Config{
		Cluster: func(c *testbed.Config) {
			c.APIServerArgs = append(c.APIServerArgs, "--feature-gates=WatchList=false")
		},
		Arrange: func(s *site.Site) map[string][]string {
			require.NoError(t, csicontrollers.Define(t.Context(), s.Cluster.RestConfig()))
			return nil
		},
		Args: map[string][]string{"manifest-indexer": {"--backup-sync-period=1s", "--verify-schedules-every=2s"}},
	})
	bucket, dir := site.FileBucket(t, "default")
	s.ReachFiles(t, dir, bucket)
	s.Estate(t, "shop", 3, 100)
	s.Backup(t, "own", bucket, "shop")
	own := s.BackupEnds(t, "own")
	require.Equal(t, velerov1.BackupPhaseCompleted, own.Status.Phase)
	metav1.SetMetaDataLabel(&own.ObjectMeta, velerov1.LabelScheduleName, "nightly")
	require.NoError(t, s.Client.Update(t.Context(), own))
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(own), own) == nil && own.Annotations[holdfast.AnnotationVerified] != ""
	}, site.Patience, site.Look, "the newest backup of the schedule is verified")
	root := filepath.Join(dir, bucket.Location, "backups")
	writeForeignBackup(t, root)
	pvb := &velerov1.PodVolumeBackup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "foreign-1"}}
	awaitCreated(t, s, pvb)
	endUnfinished(t, s, bucket, root)

	spec, err := structpb.NewStruct(map[string]any{"backupName": "own", "namespaceMapping": map[string]any{"shop": "copy"}})
	require.NoError(t, err)
	_, err = queuev1.NewQueueServiceClient(s.Dial(t, "queue-scheduler")).SubmitRestore(t.Context(), &queuev1.SubmitRestoreRequest{Name: "called", Spec: spec})
	require.NoError(t, err)
	require.Equal(t, velerov1.RestorePhaseCompleted, s.RestoreEnds(t, "called").Status.Phase)

	download := &velerov1.DownloadRequest{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "log"}, Spec: velerov1.DownloadRequestSpec{
		Target: velerov1.DownloadTarget{Kind: velerov1.DownloadTargetKindRestoreLog, Name: "called"},
	}}
	require.NoError(t, s.Client.Create(t.Context(), download))
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(download), download) == nil && download.Status.DownloadURL != ""
	}, site.Patience, site.Look, "a link to the log")
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	before := download.DeepCopy()
	download.Status.Expiration = &past
	require.NoError(t, s.Client.Patch(t.Context(), download, client.MergeFrom(before)))
	status := &velerov1.ServerStatusRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "status"},
		Status:     velerov1.ServerStatusRequestStatus{Phase: velerov1.ServerStatusRequestPhaseProcessed, ProcessedTimestamp: &past},
	}
	require.NoError(t, s.Client.Create(t.Context(), status))
	awaitDeleted(t, s, download)
	awaitDeleted(t, s, status)

	require.NoError(t, os.RemoveAll(filepath.Join(root, "foreign")))
	awaitDeleted(t, s, &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "foreign"}})
	left := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "left", Labels: map[string]string{velerov1.LabelBackupName: "own"}},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: new("data")}},
	}
	require.NoError(t, s.Client.Create(t.Context(), left))
	_, err = deletionv1.NewDeletionServiceClient(s.Dial(t, "deletion")).DeleteBackup(t.Context(), &deletionv1.DeleteBackupRequest{Backup: "own"})
	require.NoError(t, err)
	awaitDeleted(t, s, &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "own"}})
	awaitDeleted(t, s, left)
}

// writeForeignBackup writes a backup of another server's schedule, with the data of a volume, beside the one
// there is.
func writeForeignBackup(t *testing.T, root string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "own", "velero-backup.json"))
	require.NoError(t, err)
	b := &velerov1.Backup{}
	require.NoError(t, json.Unmarshal(text, b))
	b.Name, b.UID = "foreign", ""
	b.OwnerReferences = []metav1.OwnerReference{{APIVersion: "velero.io/v1", Kind: "Schedule", Name: "elsewhere", UID: "elsewhere"}}
	text, err = json.Marshal(b)
	require.NoError(t, err)
	volumes, err := json.Marshal([]velerov1.PodVolumeBackup{{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign-1", Labels: map[string]string{velerov1.LabelBackupName: "foreign"}},
		Status:     velerov1.PodVolumeBackupStatus{Phase: velerov1.PodVolumePhaseCompleted},
	}})
	require.NoError(t, err)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(volumes)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	tarball, err := os.ReadFile(filepath.Join(root, "own", "own.tar.gz"))
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(root, "foreign"), 0o700))
	for _, file := range []struct { // what names the backup comes last
		name string
		data []byte
	}{{"foreign.tar.gz", tarball}, {"foreign-podvolumebackups.json.gz", zipped.Bytes()}, {"velero-backup.json", text}} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "foreign", file.name), file.data, 0o600))
	}
}

func awaitCreated(t *testing.T, s *site.Site, object client.Object) {
	t.Helper()
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object) == nil
	}, site.Patience, site.Look, "%T %s is there", object, object.GetName())
}

func awaitDeleted(t *testing.T, s *site.Site, object client.Object) {
	t.Helper()
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	}, site.Patience, site.Look, "%T %s is gone", object, object.GetName())
}
