package catalogue_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

func TestCatalogue(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"file", "s3"} {
		b.requireEventually(func() bool { return b.locationPhase(name) == velerov1.LocationPhaseAvailable }, name+" gets available")
	}
	t.Run("status", func(t *testing.T) { bedForSubtest(b, t).checkStatus() })
	for _, name := range []string{"file", "s3"} {
		t.Run("sync, download and delete on "+name, func(t *testing.T) { bedForSubtest(b, t).checkLife(name) })
		t.Run("expiry on "+name, func(t *testing.T) { bedForSubtest(b, t).checkExpiry(name) })
	}
	t.Run("bad locations", func(t *testing.T) { bedForSubtest(b, t).checkBadLocations() })
	t.Run("refused deletion", func(t *testing.T) { bedForSubtest(b, t).checkRefusal() })
	for _, name := range []string{"file", "s3"} {
		t.Run("sweep on "+name, func(t *testing.T) { bedForSubtest(b, t).checkSweep(name) })
	}
}

// bedForSubtest is the bed seen from a subtest.
func bedForSubtest(b *bed, t *testing.T) *bed {
	sub := *b
	sub.t = t
	return &sub
}

func (b *bed) locationPhase(name string) velerov1.BackupStorageLocationPhase {
	var loc velerov1.BackupStorageLocation
	b.getObject(name, &loc)
	return loc.Status.Phase
}

// checkStatus asks as `velero version` does.
func (b *bed) checkStatus() {
	b.createObject(&velerov1.ServerStatusRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ssr"}})
	require.Eventually(b.t, func() bool {
		var ssr velerov1.ServerStatusRequest
		return b.getObject("ssr", &ssr) && ssr.Status.Phase == velerov1.ServerStatusRequestPhaseProcessed &&
			strings.HasPrefix(ssr.Status.ServerVersion, "v1.18.") && ssr.Status.ProcessedTimestamp != nil
	}, time.Minute, 50*time.Millisecond)
}

// checkLife finds a backup in the bucket, downloads from it, deletes it and looks for what is left.
func (b *bed) checkLife(at string) {
	name, store := "found-on-"+at, b.openStore(at)
	b.plantBackup(store, name, time.Now().Add(time.Hour))
	b.requireEventually(func() bool { return b.getObject(name, &velerov1.Backup{}) }, "the backup is found")
	var backup velerov1.Backup
	b.getObject(name, &backup)
	require.Equal(b.t, velerov1.BackupPhaseCompleted, backup.Status.Phase)
	require.Equal(b.t, at, backup.Spec.StorageLocation)
	require.Equal(b.t, at, backup.Labels[velerov1.LabelStorageLocation])

	code, body := b.fetchURL(b.requestURL(name, velerov1.DownloadTargetKindBackupLog))
	require.Equal(b.t, http.StatusOK, code)
	require.Equal(b.t, "\x1f\x8blog", string(body))
	code, _ = b.fetchURL(b.requestURL(name, velerov1.DownloadTargetKindBackupResults))
	require.Equal(b.t, http.StatusNotFound, code, "a file that is not there")

	request := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: name + "-"}}
	request.Spec.BackupName = name
	b.createObject(request)
	b.requireEventually(func() bool { return !b.getObject(name, &velerov1.Backup{}) }, "the backup goes")
	require.Empty(b.t, b.listKeys(store))
	b.requireEventually(func() bool { return !b.getObject(request.Name, &velerov1.DeleteBackupRequest{}) }, "the request goes")
}

// requestURL makes a DownloadRequest and waits for its URL.
func (b *bed) requestURL(backup string, kind velerov1.DownloadTargetKind) string {
	b.t.Helper()
	dr := &velerov1.DownloadRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: backup + "-"}}
	dr.Spec.Target = velerov1.DownloadTarget{Kind: kind, Name: backup}
	b.createObject(dr)
	b.requireEventually(func() bool { return b.getObject(dr.Name, dr) && dr.Status.DownloadURL != "" }, "the request is answered")
	require.Equal(b.t, velerov1.DownloadRequestPhaseProcessed, dr.Status.Phase)
	return dr.Status.DownloadURL
}

func (b *bed) checkExpiry(at string) {
	name, store := "expired-on-"+at, b.openStore(at)
	b.plantBackup(store, name, time.Now().Add(2*time.Second))
	b.requireEventually(func() bool { return len(b.listKeys(store)) == 0 }, "its data goes")
	b.requireEventually(func() bool { return !b.getObject(name, &velerov1.Backup{}) }, "the object goes")
}

func (b *bed) checkBadLocations() {
	foreign := filepath.Join(b.dir, "foreign")
	require.NoError(b.t, os.MkdirAll(filepath.Join(foreign, "holiday-pictures"), 0o700))
	require.NoError(b.t, os.WriteFile(filepath.Join(foreign, "holiday-pictures", "1.jpg"), nil, 0o600))
	for name, want := range map[string]string{"no-bucket": "bucket does not exist", "foreign": "holiday-pictures", "no-provider": "spec.provider"} {
		loc := newLocation(name, "holdfast.io/file", map[string]string{"path": b.dir})
		loc.Spec.ObjectStorage.Bucket = name
		if name == "no-provider" {
			loc.Spec.Provider = "gcp"
		}
		b.createObject(loc)
		b.requireEventually(func() bool { return b.locationPhase(name) == velerov1.LocationPhaseUnavailable }, name)
		b.getObject(name, loc)
		require.Contains(b.t, loc.Status.Message, `BackupStorageLocation "`+name+`" is unavailable: `)
		require.Contains(b.t, loc.Status.Message, want)
		require.NotNil(b.t, loc.Status.LastValidationTime)
	}
	require.NoError(b.t, os.Mkdir(filepath.Join(b.dir, "no-bucket"), 0o700))
	var loc velerov1.BackupStorageLocation
	b.getObject("no-bucket", &loc)
	loc.Spec.ObjectStorage.Prefix = "changed"
	require.NoError(b.t, b.client.Update(b.t.Context(), &loc))
	b.requireEventually(func() bool { return b.locationPhase("no-bucket") == velerov1.LocationPhaseAvailable }, "a change is validated at once")
}

func (b *bed) checkRefusal() {
	running := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "running"}}
	running.Spec.StorageLocation, running.Status.Phase = "file", velerov1.BackupPhaseInProgress
	b.createObject(running)
	store := b.openStore("file")
	require.NoError(b.t, store.Create(b.t.Context(), layout.Part("running", string(running.UID), 1, "u", 0, 0), strings.NewReader("x"), 1))
	request := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refused"}}
	request.Spec.BackupName = "running"
	b.createObject(request)
	b.requireEventually(func() bool {
		return b.getObject("refused", request) && request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed
	}, "the request is refused")
	require.Equal(b.t, []string{"backup is still in progress"}, request.Status.Errors)
	require.True(b.t, b.getObject("running", running))
	require.Len(b.t, b.listKeys(store), 1)
}
