package leftover_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/archive/leftover"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// largeLog is a bucket whose log is longer than any disk. Where listed is 0 lists have no sizes, as
// those of a store behind a plugin.
type largeLog struct {
	*memstore.Store
	listed int64
	read   int64
}

// List implements objectstore.Reader.
func (s *largeLog) List(ctx context.Context, prefix string, fn func(objectstore.Info) error) error {
	return s.Store.List(ctx, prefix, func(i objectstore.Info) error {
		if i.Key == layout.BackupLog("b") {
			i.Size = s.listed
		}
		return fn(i)
	})
}

// Get implements objectstore.Reader.
func (s *largeLog) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if key == layout.BackupLog("b") {
		return io.NopCloser(s), nil
	}
	return s.Store.Get(ctx, key)
}

// Read implements io.Reader: the log has no end.
func (s *largeLog) Read(p []byte) (int, error) {
	if s.read += int64(len(p)); s.read > 100<<20 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

// published completes the files of another server's job, and checks all but the log.
func published(t *testing.T, j *leftover.Job, store *memstore.Store) error {
	t.Helper()
	o, err := j.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{3, 2}, []int{o.Completed, o.Failed})
	publishing := j.Publish(t.Context(), o)
	require.NoError(t, o.Close())
	left, err := os.ReadDir(j.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	body, err := store.Get(t.Context(), layout.BackupItemOperations("b"))
	require.NoError(t, err)
	list, err := itemoperation.Decode(body)
	require.NoError(t, err)
	require.Len(t, list, 5)
	for _, op := range list {
		require.True(t, op.Done(), op.Spec.ID)
	}
	return publishing
}

// A log of any length was copied to the disk of the process, for a bucket to decide.
func TestALogThatIsTooLargeStaysAsItIs(t *testing.T) {
	for name, listed := range map[string]int64{"listed": 64<<20 + 1, "listed without its size": 0} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			store.Set(layout.BackupItemOperations("b"), packed(t, mixed))
			store.Set(layout.BackupLog("b"), packed(t, "the first line\n"))
			large := &largeLog{Store: store, listed: listed}
			j := job(t, store)
			j.Store = large
			err := published(t, j, store)
			require.ErrorIs(t, err, leftover.ErrLeft)
			require.ErrorContains(t, err, layout.BackupLog("b"))
			require.Equal(t, "the first line\n", text(t, store, layout.BackupLog("b")))
			require.Len(t, results(t, store).Errors.Namespaces["n"], 3)
			if listed > 0 {
				require.Zero(t, large.read, "its size is known before it is copied")
			}
		})
	}
}

// The file of operations said for good that they continue where the log could not be copied in time.
func TestALogThatCannotBeExtendedCostsNoOtherFile(t *testing.T) {
	broken := errors.New("connection reset")
	for _, call := range []memstore.Op{memstore.OpList, memstore.OpGet, memstore.OpPut} {
		for name, before := range map[string][]byte{"results": packed(t, "{}"), "damaged results": []byte("junk")} {
			t.Run(string(call)+" "+name, func(t *testing.T) {
				store := memstore.New()
				store.Set(layout.BackupItemOperations("b"), packed(t, mixed))
				store.Set(layout.BackupResults("b"), before)
				store.Set(layout.BackupLog("b"), packed(t, "the first line\n"))
				store.Inject(func(op memstore.Op, key string) error {
					if op == call && key == layout.BackupLog("b") {
						return broken
					}
					return nil
				})
				err := published(t, job(t, store), store)
				require.ErrorIs(t, err, leftover.ErrLog)
				require.ErrorIs(t, err, broken)
				require.NotErrorIs(t, err, leftover.ErrLeft, "the log is tried again")
				store.Inject(nil)
				err = published(t, job(t, store), store)
				require.Equal(t, name != "results", errors.Is(err, leftover.ErrLeft), err)
				require.Contains(t, text(t, store, layout.BackupLog("b")), "the first line\n")
				require.Contains(t, text(t, store, layout.BackupLog("b")), "du-1")
			})
		}
	}
}
