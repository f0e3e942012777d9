package download

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore/artifact"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
)

type bed struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakeClock
	r      *Reconciler
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bucket"), 0o755))
	place := func(name, provider string, config map[string]string) *velerov1.BackupStorageLocation {
		return &velerov1.BackupStorageLocation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: "u"},
			Spec: velerov1.BackupStorageLocationSpec{
				Provider: provider, Config: config,
				StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "bucket", Prefix: "p"}},
			},
		}
	}
	file := place("file", holdfast.ProviderFile, map[string]string{"path": dir})
	file.Spec.Default = true
	s3 := place("s3", "aws", map[string]string{"region": "r", "s3Url": "http://127.0.0.1:1", "s3ForcePathStyle": "true"})
	s3.Spec.Credential = &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud"}, Key: "k"}
	objects = append(objects, file, s3, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "cloud"},
		Data:       map[string][]byte{"k": []byte("[default]\naws_access_key_id=A\naws_secret_access_key=B\n")},
	}, newBackup("on-file", "file"), newBackup("on-s3", "s3"), newBackup("new", ""), newBackup("lost", "no-such-location"),
		newRestore("r-file", "on-file"), newRestore("r-orphan", "gone"), newRestore("r-new", ""))
	b := &bed{t: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(),
		clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	b.r = &Reconciler{
		Reader: b.client, Client: b.client, Locations: location.New(b.client, "velero"), Clock: b.clock, Log: slog.New(slog.DiscardHandler),
		Linker: &artifact.Signer{Key: []byte(strings.Repeat("k", 32)), Base: "http://127.0.0.1:8445", Clock: b.clock},
	}
	return b
}

func newBackup(name, location string) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}}
	b.Spec.StorageLocation = location
	return b
}

func newRestore(name, of string) *velerov1.Restore {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}}
	r.Spec.BackupName = of
	return r
}

var key = client.ObjectKey{Namespace: "velero", Name: "dr"}

// requestDownload makes a request and reconciles it once.
func (b *bed) requestDownload(kind velerov1.DownloadTargetKind, name string) (*velerov1.DownloadRequest, reconcile.Result) {
	b.t.Helper()
	dr := &velerov1.DownloadRequest{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	require.NoError(b.t, client.IgnoreNotFound(b.client.Delete(b.t.Context(), dr.DeepCopy())))
	dr.Spec.Target = velerov1.DownloadTarget{Kind: kind, Name: name}
	require.NoError(b.t, b.client.Create(b.t.Context(), dr))
	return b.reconcileAgain()
}

func (b *bed) reconcileAgain() (*velerov1.DownloadRequest, reconcile.Result) {
	b.t.Helper()
	result, err := b.r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(b.t, err)
	var dr velerov1.DownloadRequest
	if err := b.client.Get(b.t.Context(), key, &dr); apierrors.IsNotFound(err) {
		return nil, result
	}
	return &dr, result
}

func TestAnswersEveryKind(t *testing.T) {
	b := newBed(t)
	for kind, want := range map[velerov1.DownloadTargetKind]string{
		velerov1.DownloadTargetKindBackupLog:                       "/backups/on-file/on-file-logs.gz",
		velerov1.DownloadTargetKindBackupContents:                  "/backups/on-file/on-file.tar.gz",
		velerov1.DownloadTargetKindBackupVolumeSnapshots:           "/backups/on-file/on-file-volumesnapshots.json.gz",
		velerov1.DownloadTargetKindBackupItemOperations:            "/backups/on-file/on-file-itemoperations.json.gz",
		velerov1.DownloadTargetKindBackupResourceList:              "/backups/on-file/on-file-resource-list.json.gz",
		velerov1.DownloadTargetKindBackupResults:                   "/backups/on-file/on-file-results.gz",
		velerov1.DownloadTargetKindBackupVolumeInfos:               "/backups/on-file/on-file-volumeinfo.json.gz",
		velerov1.DownloadTargetKindCSIBackupVolumeSnapshots:        "/backups/on-file/on-file-csi-volumesnapshots.json.gz",
		velerov1.DownloadTargetKindCSIBackupVolumeSnapshotContents: "/backups/on-file/on-file-csi-volumesnapshotcontents.json.gz",
		velerov1.DownloadTargetKindRestoreLog:                      "/restores/r-file/restore-r-file-logs.gz",
		velerov1.DownloadTargetKindRestoreResults:                  "/restores/r-file/restore-r-file-results.gz",
		velerov1.DownloadTargetKindRestoreResourceList:             "/restores/r-file/restore-r-file-resource-list.json.gz",
		velerov1.DownloadTargetKindRestoreItemOperations:           "/restores/r-file/restore-r-file-itemoperations.json.gz",
		velerov1.DownloadTargetKindRestoreVolumeInfo:               "/restores/r-file/r-file-volumeinfo.json.gz",
	} {
		name := "on-file"
		if strings.HasPrefix(string(kind), "Restore") {
			name = "r-file"
		}
		dr, result := b.requestDownload(kind, name)
		require.Equal(t, velerov1.DownloadRequestPhaseProcessed, dr.Status.Phase)
		require.Contains(t, dr.Status.DownloadURL, "http://127.0.0.1:8445/artifacts/file"+want+"?")
		require.True(t, b.clock.Now().Add(ttl).Equal(dr.Status.Expiration.Time))
		require.Equal(t, ttl, result.RequeueAfter)
	}
}

// The bucket of the backup refused the files of the restore.
func TestFilesOfARestoreAreWhereItsMarkSays(t *testing.T) {
	r := newRestore("r-moved", "on-s3")
	r.UID = "u"
	require.NoError(t, mark.SetFilesLocation(r, "file"))
	b := newBed(t, r)
	dr, _ := b.requestDownload(velerov1.DownloadTargetKindRestoreLog, "r-moved")
	require.Contains(t, dr.Status.DownloadURL, "http://127.0.0.1:8445/artifacts/file/restores/r-moved/restore-r-moved-logs.gz?")
}

func TestS3IsSignedByTheStore(t *testing.T) {
	b := newBed(t)
	dr, _ := b.requestDownload(velerov1.DownloadTargetKindBackupLog, "on-s3")
	require.Contains(t, dr.Status.DownloadURL, "http://127.0.0.1:1/bucket/p/backups/on-s3/on-s3-logs.gz?")
	require.Contains(t, dr.Status.DownloadURL, "X-Amz-Expires=600")
}

func TestABackupWithoutALocationIsInTheDefault(t *testing.T) {
	b := newBed(t)
	dr, _ := b.requestDownload(velerov1.DownloadTargetKindBackupVolumeInfos, "new")
	require.Contains(t, dr.Status.DownloadURL, "/artifacts/file/backups/new/")
}

func TestAnExpiredRequestIsDeleted(t *testing.T) {
	b := newBed(t)
	dr, _ := b.requestDownload(velerov1.DownloadTargetKindBackupLog, "on-file")
	url := dr.Status.DownloadURL
	b.clock.Step(ttl - time.Second)
	dr, result := b.reconcileAgain()
	require.Equal(t, url, dr.Status.DownloadURL, "answered once")
	require.Equal(t, time.Second, result.RequeueAfter)
	b.clock.Step(time.Second)
	dr, _ = b.reconcileAgain()
	require.Nil(t, dr)
	_, result = b.reconcileAgain()
	require.Zero(t, result)
}

func TestUnanswerableRequestsWaitAndEnd(t *testing.T) {
	b := newBed(t)
	for name, target := range map[string]velerov1.DownloadTarget{
		"no backup":        {Kind: velerov1.DownloadTargetKindBackupLog, Name: "absent"},
		"no restore":       {Kind: velerov1.DownloadTargetKindRestoreLog, Name: "absent"},
		"restore's backup": {Kind: velerov1.DownloadTargetKindRestoreLog, Name: "r-orphan"},
		"not resolved":     {Kind: velerov1.DownloadTargetKindRestoreLog, Name: "r-new"},
		"no location":      {Kind: velerov1.DownloadTargetKindBackupLog, Name: "lost"},
		"walking up":       {Kind: velerov1.DownloadTargetKindBackupLog, Name: "../../etc"},
		"unknown kind":     {Kind: "BackupSecrets", Name: "on-file"},
		"empty":            {},
	} {
		t.Run(name, func(t *testing.T) {
			dr, result := b.requestDownload(target.Kind, target.Name)
			require.Empty(t, dr.Status.Phase)
			require.Empty(t, dr.Status.DownloadURL)
			require.Equal(t, retry, result.RequeueAfter)
			first := dr.Status.Expiration.Time
			b.clock.Step(time.Minute)
			dr, _ = b.reconcileAgain()
			require.True(t, first.Equal(dr.Status.Expiration.Time), "its end does not move")
			b.clock.Step(ttl)
			dr, _ = b.reconcileAgain()
			require.Nil(t, dr)
		})
	}
}

func TestAnswersOnceTheBackupAppears(t *testing.T) {
	b := newBed(t)
	b.requestDownload(velerov1.DownloadTargetKindBackupLog, "late")
	require.NoError(t, b.client.Create(t.Context(), newBackup("late", "file")))
	dr, _ := b.reconcileAgain()
	require.Equal(t, velerov1.DownloadRequestPhaseProcessed, dr.Status.Phase)
}

func TestFaultsOfTheAPIAreRetried(t *testing.T) {
	b := newBed(t)
	b.requestDownload(velerov1.DownloadTargetKindBackupLog, "absent")
	b.r.Reader = interceptor.NewClient(b.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, ok := obj.(*velerov1.Backup); ok {
				return errors.New("etcd is away")
			}
			return c.Get(ctx, k, obj, opts...)
		},
	})
	_, err := b.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	require.ErrorContains(t, err, "etcd is away")
}
