package repository

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/kopia/kopia/repo/blob"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// rangeStore notes the lengths of ranges that are read, and breaks the next ones off.
type rangeStore struct {
	objectstore.Store
	mu      sync.Mutex
	lengths []int64
	broken  int
}

func (s *rangeStore) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lengths = append(s.lengths, n)
	rc, err := s.Store.GetRange(ctx, key, off, n)
	if err != nil || s.broken == 0 {
		return rc, err
	}
	s.broken--
	return io.NopCloser(io.MultiReader(io.LimitReader(rc, n/2), errorReader{})), nil
}

func (s *rangeStore) takeLengths() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.lengths
	s.lengths = nil
	return taken
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// windowBed is a storage with a blob of each name.
func windowBed(t *testing.T, size int, names ...string) (*rangeStore, []byte, func(id blob.ID, offset, length int64) error) {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	store := &rangeStore{Store: memstore.New()}
	s, err := newStorage(store, Options{Namespace: "app"})
	require.NoError(t, err)
	for _, name := range names {
		require.NoError(t, s.PutBlob(t.Context(), blob.ID(name), blobText(content), blob.PutOptions{}))
	}
	return store, content, func(id blob.ID, offset, length int64) error {
		out := &buffer{}
		if err := s.GetBlob(t.Context(), id, offset, length, out); err != nil {
			return err
		}
		if !bytes.Equal(content[offset:offset+length], out.Bytes()) {
			return errors.New("other content")
		}
		return nil
	}
}

const fullWindow = windowStep + windowRange

// TestWindowsOfSmallFiles checks that files side by side cost two calls for each window, also where a file lies across
// the end of one, and that nothing else is read by windows.
func TestWindowsOfSmallFiles(t *testing.T) {
	const file = 1000
	store, content, read := windowBed(t, 2*windowStep+windowStep/2, "pack", "q", "index")
	for _, name := range []blob.ID{"pack", "q"} {
		for offset := int64(0); offset+file <= int64(len(content)); offset += file {
			require.NoError(t, read(name, offset, file))
		}
		require.Equal(t, []int64{file, fullWindow, file, fullWindow, file, fullWindow}, store.takeLengths())
		require.ErrorIs(t, read(name, int64(len(content)), file), blob.ErrInvalidRange, "behind the end")
		store.takeLengths()
		for range 3 {
			require.NoError(t, read(name, 5, windowRange+1))
			require.NoError(t, read(name, windowStep-1, windowRange))
		}
		require.Equal(t, []int64{windowRange + 1, windowRange + 1, windowRange + 1}, store.takeLengths())
	}
	for range 3 {
		require.NoError(t, read("index", 0, file))
	}
	require.Equal(t, []int64{file, file, file}, store.takeLengths())
}

// TestWindowBreaksOff checks that a window which could not be read whole is read again.
func TestWindowBreaksOff(t *testing.T) {
	store, _, read := windowBed(t, windowStep, "pack")
	require.NoError(t, read("pack", 0, 1000))
	store.broken = 1
	require.ErrorIs(t, read("pack", 1000, 1000), io.ErrUnexpectedEOF)
	require.NoError(t, read("pack", windowStep-1000, 1000))
	require.NoError(t, read("pack", 1000, 1000))
	require.Equal(t, []int64{1000, fullWindow, fullWindow}, store.takeLengths())
}

// TestWindowOfManyReaders checks that readers side by side share a window.
func TestWindowOfManyReaders(t *testing.T) {
	store, _, read := windowBed(t, windowStep, "pack")
	require.NoError(t, read("pack", 0, 1000))
	var readers errgroup.Group
	for i := range 50 {
		readers.Go(func() error { return read("pack", int64(i)*1000, 1000) })
	}
	require.NoError(t, readers.Wait())
	require.Equal(t, []int64{1000, fullWindow}, store.takeLengths())
}

// TestWindowsInNoOrder checks that reads all over more packs than are kept cost few windows.
func TestWindowsInNoOrder(t *testing.T) {
	const rounds = 64
	var names []string
	for i := range 2 * windowsKept {
		names = append(names, "p"+string(rune('A'+i)))
	}
	store, _, read := windowBed(t, windowStep/4, names...)
	for round := range rounds {
		for _, name := range names {
			require.NoError(t, read(blob.ID(name), int64(round)*1000, 1000))
		}
	}
	windows := len(slices.DeleteFunc(store.takeLengths(), func(n int64) bool { return n != fullWindow }))
	require.LessOrEqual(t, windows, 6*len(names), "after 2, 4, 8, 16, 32 and 64 reads")
}
