package restore

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	kopiafs "github.com/kopia/kopia/fs"
	"github.com/kopia/kopia/fs/virtualfs"
	"github.com/kopia/kopia/repo"
	kopiaupload "github.com/kopia/kopia/snapshot/upload"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// TestDevice writes a snapshot of a block device, as Velero stores it, to a file in the place of one.
func TestDevice(t *testing.T) {
	r, err := repository.Create(t.Context(), memstore.New(), repository.Options{
		Namespace: "app", Password: "secret", Dir: t.TempDir(), Fatal: func(err error) { t.Error(err) },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close(t.Context())) }()
	source := repository.Source{Requester: repository.DataUpload, Namespace: "app", Volume: "data"}
	blocks := append(bytes.Repeat([]byte("block"), 1000), make([]byte, 100000)...)
	var ids []string
	for _, entries := range [][]kopiafs.Entry{
		{virtualfs.StreamingFileWithModTimeFromReader("/uid", time.Now(), nopCloser{bytes.NewReader(blocks)})},
		{virtualfs.StreamingFileWithModTimeFromReader("a", time.Now(), nopCloser{bytes.NewReader(blocks)}), virtualfs.StreamingFileWithModTimeFromReader("b", time.Now(), nopCloser{bytes.NewReader(blocks)})},
	} {
		require.NoError(t, r.Write(t.Context(), "test", func(ctx context.Context, w repo.RepositoryWriter) error {
			m, err := kopiaupload.NewUploader(w).Upload(ctx, virtualfs.NewStaticDirectory("/", entries), repository.UploadPolicy(1), source.Info())
			require.NoError(t, err)
			id, err := r.SaveSnapshot(ctx, w, source, m)
			ids = append(ids, id)
			return err
		}))
	}
	for name, c := range map[string]struct {
		id   string
		size int64
		want string
	}{
		"equal":       {ids[0], int64(len(blocks)), ""},
		"larger":      {ids[0], int64(len(blocks)) + 10, ""},
		"smaller":     {ids[0], int64(len(blocks)) - 1, "the target has 104999 bytes"},
		"a directory": {ids[1], int64(len(blocks)), "not that of one"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "device")
			require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{7}, int(c.size)), 0o600))
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			defer func() { _ = f.Close() }()
			m, err := r.LoadSnapshot(t.Context(), c.id)
			require.NoError(t, err)
			w := &snapshotWriter{repository: r, rec: &outcome.Recorder{}}
			err = w.restoreDevice(t.Context(), m.RootEntry, f)
			written, readErr := os.ReadFile(path)
			require.NoError(t, readErr)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Equal(t, bytes.Repeat([]byte{7}, int(c.size)), written)
				return
			}
			require.NoError(t, err)
			require.Equal(t, blocks, written[:len(blocks)])
		})
	}
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }
