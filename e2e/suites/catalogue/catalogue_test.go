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
		b.eventually(func() bool { return b.phase(name) == velerov1.LocationPhaseAvailable }, name+" gets available")
	}
	t.Run("status", func(t *testing.T) { on(b, t).checkStatus() })
	for _, name := range []string{"file", "s3"} {
		t.Run("sync, download and delete on "+name, func(t *testing.T) { on(b, t).checkLife(name) })
		t.Run("expiry on "+name, func(t *testing.T) { on(b, t).checkExpiry(name) })
	}
	t.Run("bad locations", func(t *testing.T) { on(b, t).checkBadLocations() })
	t.Run("refused deletion", func(t *testing.T) { on(b, t).checkRefusal() })
	for _, name := range []string{"file", "s3"} {
		t.Run("sweep on "+name, func(t *testing.T) { on(b, t).checkSweep(name) })
	}
}

// on is the bed seen from a subtest.
func on(b *bed, t *testing.T) *bed {
	sub := *b
	sub.t = t
	return &sub
}

func (b *bed) phase(name string) velerov1.BackupStorageLocationPhase {
	var loc velerov1.BackupStorageLocation
	b.get(name, &loc)
	return loc.Status.Phase
}

// checkStatus asks as `velero version` does.
func (b *bed) checkStatus() {
	b.create(&velerov1.ServerStatusRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ssr"}})
	require.Eventually(b.t, func() bool {
		var ssr velerov1.ServerStatusRequest
		return b.get("ssr", &ssr) && ssr.Status.Phase == velerov1.ServerStatusRequestPhaseProcessed &&
			strings.HasPrefix(ssr.Status.ServerVersion, "v1.18.") && ssr.Status.ProcessedTimestamp != nil
	}, time.Minute, 50*time.Millisecond)
}

// checkLife finds a backup in the bucket, downloads from it, deletes it and looks for what is left.
func (b *bed) checkLife(at string) {
	name, store := "found-on-"+at, b.store(at)
	b.plant(store, name, time.Now().Add(time.Hour))
	b.eventually(func() bool { return b.get(name, &velerov1.Backup{}) }, "the backup is found")
	var backup velerov1.Backup
	b.get(name, &backup)
	require.Equal(b.t, velerov1.BackupPhaseCompleted, backup.Status.Phase)
	require.Equal(b.t, at, backup.Spec.StorageLocation)
	require.Equal(b.t, at, backup.Labels[velerov1.LabelStorageLocation])

	code, body := b.fetch(b.ask(name, velerov1.DownloadTargetKindBackupLog))
	require.Equal(b.t, http.StatusOK, code)
	require.Equal(b.t, "\x1f\x8blog", string(body))
	code, _ = b.fetch(b.ask(name, velerov1.DownloadTargetKindBackupResults))
	require.Equal(b.t, http.StatusNotFound, code, "a file that is not there")

	request := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: name + "-"}}
	request.Spec.BackupName = name
	b.create(request)
	b.eventually(func() bool { return !b.get(name, &velerov1.Backup{}) }, "the backup goes")
	require.Empty(b.t, b.keys(store))
	b.eventually(func() bool { return !b.get(request.Name, &velerov1.DeleteBackupRequest{}) }, "the request goes")
}

// ask makes a DownloadRequest and waits for its URL.
func (b *bed) ask(backup string, kind velerov1.DownloadTargetKind) string {
	b.t.Helper()
	dr := &velerov1.DownloadRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: backup + "-"}}
	dr.Spec.Target = velerov1.DownloadTarget{Kind: kind, Name: backup}
	b.create(dr)
	b.eventually(func() bool { return b.get(dr.Name, dr) && dr.Status.DownloadURL != "" }, "the request is answered")
	require.Equal(b.t, velerov1.DownloadRequestPhaseProcessed, dr.Status.Phase)
	return dr.Status.DownloadURL
}

func (b *bed) checkExpiry(at string) {
	name, store := "expired-on-"+at, b.store(at)
	b.plant(store, name, time.Now().Add(2*time.Second))
	b.eventually(func() bool { return len(b.keys(store)) == 0 }, "its data goes")
	b.eventually(func() bool { return !b.get(name, &velerov1.Backup{}) }, "the object goes")
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
		b.create(loc)
		b.eventually(func() bool { return b.phase(name) == velerov1.LocationPhaseUnavailable }, name)
		b.get(name, loc)
		require.Contains(b.t, loc.Status.Message, `BackupStorageLocation "`+name+`" is unavailable: `)
		require.Contains(b.t, loc.Status.Message, want)
		require.NotNil(b.t, loc.Status.LastValidationTime)
	}
	require.NoError(b.t, os.Mkdir(filepath.Join(b.dir, "no-bucket"), 0o700))
	var loc velerov1.BackupStorageLocation
	b.get("no-bucket", &loc)
	loc.Spec.ObjectStorage.Prefix = "changed"
	require.NoError(b.t, b.client.Update(b.t.Context(), &loc))
	b.eventually(func() bool { return b.phase("no-bucket") == velerov1.LocationPhaseAvailable }, "a change is validated at once")
}

func (b *bed) checkRefusal() {
	running := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "running"}}
	running.Spec.StorageLocation, running.Status.Phase = "file", velerov1.BackupPhaseInProgress
	b.create(running)
	store := b.store("file")
	require.NoError(b.t, store.Create(b.t.Context(), layout.Part("running", string(running.UID), 1, "u", 0, 0), strings.NewReader("x"), 1))
	request := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refused"}}
	request.Spec.BackupName = "running"
	b.create(request)
	b.eventually(func() bool {
		return b.get("refused", request) && request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed
	}, "the request is refused")
	require.Equal(b.t, []string{"backup is still in progress"}, request.Status.Errors)
	require.True(b.t, b.get("running", running))
	require.Len(b.t, b.keys(store), 1)
}
