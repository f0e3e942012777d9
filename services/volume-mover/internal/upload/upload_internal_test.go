package upload

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// TestTotal checks that a long upload says how much there is while it runs, and a short one in the end, without a second
// look at the volume.
func TestTotal(t *testing.T) {
	for name, size := range map[string]int{"short": 1 << 10, "long": 28 << 20} {
		t.Run(name, func(t *testing.T) {
			store, clk, rec := memstore.New(), clocktesting.NewFakeClock(time.Now()), &outcome.Recorder{}
			r, err := repository.Create(t.Context(), store, repository.Options{
				Namespace: "app", Password: "secret", Dir: t.TempDir(), Fatal: func(err error) { t.Error(err) },
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close(t.Context())) }()
			volume, data := t.TempDir(), make([]byte, size)
			_, _ = rand.Read(data)
			require.NoError(t, os.WriteFile(filepath.Join(volume, "file"), data, 0o600))
			var seen atomic.Int64
			if name == "long" {
				store.Inject(func(op memstore.Op, key string) error {
					if op == memstore.OpPut && strings.HasPrefix(key, "kopia/app/p") && seen.Load() == 0 {
						assert.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
						clk.Step(measureDelay)
						assert.Eventually(t, func() bool { return rec.Progress().BytesTotal > 0 }, time.Minute, time.Millisecond)
						seen.Store(rec.Progress().BytesTotal)
					}
					return nil
				})
			}
			result := Run(t.Context(), r, Spec{
				Path: volume, Parallel: 2, CheckpointInterval: time.Minute, Clock: clk,
				Source: repository.Source{Requester: repository.PodVolume, Namespace: "app", Pod: "web-0", Volume: "data"},
			}, rec)
			require.Equal(t, outcome.Completed, result.Phase, result.Message)
			require.EqualValues(t, size, rec.Progress().BytesTotal)
			if name == "long" {
				require.EqualValues(t, size, seen.Load())
			}
		})
	}
}

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
			result := Run(t.Context(), r, Spec{
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
