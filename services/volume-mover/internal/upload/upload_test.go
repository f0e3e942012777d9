package upload_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/upload"
)

// TestStoreFails checks that an object store which fails during an upload, be it in the write of a file's
// data or of a checkpoint, is a failure with its reason: not an error of the file, and not a cancellation.
func TestStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		size  int64
		blobs string
	}{
		"data":       {48 << 20, "kopia/app/p"},
		"checkpoint": {1 << 40, "kopia/app/q"},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			r, err := repository.Create(t.Context(), store, repository.Options{
				Namespace: "app", Password: "secret", Dir: t.TempDir(), Fatal: func(err error) { t.Error(err) },
			})
			require.NoError(t, err)
			defer func() { _ = r.Close(t.Context()) }() // what it has left cannot be stored
			store.Inject(func(op memstore.Op, key string) error {
				if op == memstore.OpPut && strings.HasPrefix(key, c.blobs) {
					return errors.New("bucket is full")
				}
				return nil
			})
			volume := t.TempDir()
			data := make([]byte, min(c.size, 64<<20))
			_, _ = rand.Read(data[:min(len(data), 48<<20)])
			path := filepath.Join(volume, "file")
			require.NoError(t, os.WriteFile(path, data, 0o600))
			require.NoError(t, os.Truncate(path, c.size))
			result := upload.Run(t.Context(), r, upload.Spec{
				Path: volume, Parallel: 2, CheckpointInterval: time.Second, Clock: clock.RealClock{},
				Source: repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: "web-0", Volume: "data"},
			}, &outcome.Recorder{})
			require.Equal(t, outcome.Failed, result.Phase)
			require.Contains(t, result.Message, "bucket is full")
			require.Empty(t, result.SnapshotID)
			require.Zero(t, result.Rules[outcome.Unreadable])
		})
	}
}
