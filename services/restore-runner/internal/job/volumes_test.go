package job_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// breaking is a bucket whose connection breaks in the middle of one key.
type breaking struct {
	objectstore.Store
	key  string
	err  error
	gets int
}

func (s *breaking) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	body, err := s.Store.Get(ctx, key)
	if err != nil || key != s.key {
		return body, err
	}
	s.gets++
	whole, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	half := io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), iotest.ErrReader(s.err))
	return struct {
		io.Reader
		io.Closer
	}{half, body}, nil
}

func TestABrokenConnectionIsNoDamageOfTheVolumeInformation(t *testing.T) {
	for name, broken := range map[string]error{"truncated answer": io.ErrUnexpectedEOF, "reset": noSuchHost()} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 3)
			b.createRestore(t, true)
			var packed bytes.Buffer
			zip := gzip.NewWriter(&packed)
			_, err := zip.Write([]byte("[" + strings.Repeat(" ", 1<<20) + "]"))
			require.NoError(t, err)
			require.NoError(t, zip.Close())
			key := layout.BackupVolumeInfo("b")
			require.NoError(t, objectstore.PutBytes(t.Context(), b.store, key, packed.Bytes()))
			bucket := &breaking{Store: b.store, key: key, err: broken}
			b.locations.store = bucket
			require.NoError(t, b.hurriedRunner(time.Minute).Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.FailureReason)
			require.Equal(t, 1, bucket.gets, "reading is resumed")
		})
	}
}

// A backup of Velero without usable volume information has CSI snapshots: its restore is Completed,
// with empty volumes.
func TestSnapshotsThatNoFileNamesTheClaimOfAreErrors(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	operation := func(namespace string) string {
		return `{"spec":{"resourceIdentifier":{"Group":"snapshot.storage.k8s.io","Resource":"volumesnapshots","Namespace":"` + namespace + `","Name":"s"}},"status":{"phase":"Completed"}}`
	}
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupItemOperations("b"), limittest.PackedText(t, "["+operation("a")+","+operation("elsewhere")+"]")))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase, r.Status.FailureReason)
	require.Equal(t, 1, r.Status.Errors)
	require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "CSI snapshot a/s: it is not restored")
}

// A damaged list of PodVolumeBackups may hide volume data.
func TestDamagedListsOfVolumeDataEndTheRestore(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupPodVolumeBackups("b"), []byte("junk")))
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Contains(t, r.Status.FailureReason, "b-podvolumebackups.json.gz")
	require.Empty(t, b.cluster.Requests("POST "))
}
