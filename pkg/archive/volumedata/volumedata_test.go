package volumedata_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func readAllVolumes(t testing.TB, store *memstore.Store) (list []volumedata.Data, err error) {
	t.Helper()
	err = volumedata.Each(t.Context(), store, "b", func(d volumedata.Data) error {
		list = append(list, d)
		return nil
	})
	return list, err
}

func TestEveryFileIsRead(t *testing.T) {
	store := memstore.New()
	list, err := readAllVolumes(t, store)
	require.NoError(t, err)
	require.Empty(t, list)
	store.Set(layout.BackupVolumeInfo("b"), limittest.PackedText(t, `[
	 {"pvcName":"c","pvcNamespace":"n","pvName":"v","backupMethod":"CSISnapshot","snapshotDataMoved":true,"result":"failed","snapshotDataMovementInfo":{"snapshotHandle":""}},
	 {"backupMethod":"PodVolumeBackup","pvbInfo":{"snapshotHandle":"k","uploaderType":"kopia","volumeName":"d","podName":"p","podNamespace":"n"}},
	 {"pvName":"x","backupMethod":"NativeSnapshot"},{"pvName":"y","skipped":true}]`))
	store.Set(layout.BackupPodVolumeBackups("b"), limittest.PackedText(t, "null\n"))
	store.Set(layout.BackupItemOperations("b"), limittest.PackedText(t, `[
	 {"spec":{"resourceIdentifier":{"Group":"","Resource":"persistentvolumeclaims","Namespace":"n","Name":"c"},"postOperationItems":[{"Group":"velero.io","Resource":"datauploads","Namespace":"velero","Name":"u"}]},"status":{"phase":"Failed"}},
	 {"spec":{"resourceIdentifier":{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshots","Namespace":"n","Name":"s"}},"status":{"phase":"Completed"}},
	 {"spec":{"resourceIdentifier":{"Group":"","Resource":"pods","Namespace":"n","Name":"p"},"postOperationItems":null},"status":{"phase":"Completed"}}]`))
	store.Set(layout.BackupCSISnapshots("b"), limittest.PackedText(t, `[{"metadata":{"namespace":"n","name":"s"},"spec":{"source":{"persistentVolumeClaimName":"c"}}}]`))
	list, err = readAllVolumes(t, store)
	require.NoError(t, err)
	require.Equal(t, []volumedata.Data{
		{Method: "DataUpload", Namespace: "n", Claim: "c", Volume: "v"},
		{Method: "PodVolumeBackup", Namespace: "n", Pod: "p", PodVolume: "d", Stored: true, Files: &volumedata.FileSnapshot{ID: "k", Uploader: "kopia"}},
		{Method: "DataUpload", Namespace: "n", Claim: "c"},
		{Method: "CSISnapshot", Namespace: "n", Snapshot: "s", Stored: true},
		{Method: "CSISnapshot", Namespace: "n", Claim: "c", Snapshot: "s", Stored: true},
	}, list)
}

func TestDamagedFiles(t *testing.T) {
	for name, data := range map[string][]byte{
		"no gzip": []byte("["), "no JSON": limittest.PackedText(t, "["), "an object": limittest.PackedText(t, `{}`), "cut short": limittest.PackedText(t, "[]")[:12], "wrong types": limittest.PackedText(t, `[{"pvName":1}]`),
	} {
		store := memstore.New()
		store.Set(layout.BackupVolumeInfo("b"), data)
		_, err := readAllVolumes(t, store)
		require.ErrorIs(t, err, volumedata.ErrMalformed, name)
		require.ErrorContains(t, err, "b-volumeinfo.json.gz")
	}
	store, away := memstore.New(), errors.New("bucket is away")
	store.Inject(func(memstore.Op, string) error { return away })
	_, err := readAllVolumes(t, store)
	require.ErrorIs(t, err, away)
	require.NotErrorIs(t, err, volumedata.ErrMalformed)
}

// A hostile bucket lists millions of volumes in a file of some kilobytes, and callers keep what
// they read.
func TestEndlessListsAreRefused(t *testing.T) {
	store := memstore.New()
	store.Set(layout.BackupVolumeInfo("b"), limittest.PackedText(t, "["+strings.Repeat(`{"pvName":"v","backupMethod":"CSISnapshot"},`, 200_001)+"{}]"))
	_, err := readAllVolumes(t, store)
	require.ErrorIs(t, err, volumedata.ErrMalformed)
	require.ErrorContains(t, err, "more than 200000 volumes")
}

// A hostile bucket has an entry of a gibibyte, which compresses to a mebibyte: it costs an error,
// not the memory of the process.
func TestAHugeEntryCostsNoMemory(t *testing.T) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write([]byte(`[{"pvName":"`))
	require.NoError(t, err)
	block := []byte(strings.Repeat("x", 1<<20))
	for range 256 {
		_, err := zip.Write(block)
		require.NoError(t, err)
	}
	require.NoError(t, zip.Close())
	store := memstore.New()
	store.Set(layout.BackupVolumeInfo("b"), out.Bytes())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = readAllVolumes(t, store)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, volumedata.ErrMalformed)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// FuzzEach: what the files of a backup cost is bounded, and what is wrong with them is ErrMalformed.
func FuzzEach(f *testing.F) {
	f.Add([]byte(`[{"pvcName":"c","pvcNamespace":"n","backupMethod":"PodVolumeBackup","pvbInfo":{"snapshotHandle":"k"}}]`))
	f.Add([]byte(`[{"spec":{"resourceIdentifier":{"Resource":"persistentvolumeclaims"},"postOperationItems":[{}]}},null]`))
	f.Add([]byte(`[[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		store := memstore.New()
		for _, key := range []string{layout.BackupVolumeInfo("b"), layout.BackupPodVolumeBackups("b"), layout.BackupItemOperations("b"), layout.BackupCSISnapshots("b")} {
			store.Set(key, limittest.PackedText(t, string(text)))
		}
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = readAllVolumes(t, store) }), uint64(64<<20+4000*len(text)))
		if err != nil {
			require.ErrorIs(t, err, volumedata.ErrMalformed)
		}
	})
}
