package assembly_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// slowStore answers once several calls wait for it, and counts them.
type slowStore struct {
	objectstore.Store
	atOnce int

	mu               sync.Mutex
	waiting, highest int
	enough           chan struct{}
}

func (s *slowStore) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	s.mu.Lock()
	s.waiting++
	if s.highest = max(s.highest, s.waiting); s.highest == s.atOnce {
		select {
		case <-s.enough:
		default:
			close(s.enough)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.enough:
	case <-time.After(time.Minute):
		return nil, errors.New("sidecars are fetched one after the other")
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting--
	}()
	return s.Store.Get(ctx, key)
}

func manyParts(t *testing.T, n int) *builder {
	t.Helper()
	b := newBuilder(t)
	for p := range n {
		b.uploadPart(func(w *part.Writer) { require.NoError(t, w.Add(newPodItem("ns", fmt.Sprintf("p-%03d", p), "x"))) })
	}
	return b
}

// A merge does not wait for one answer of the store after the other, and not for more than a few at
// once.
func TestSidecarsAreFetchedAhead(t *testing.T) {
	b := manyParts(t, 100)
	store := &slowStore{Store: b.store, atOnce: 8, enough: make(chan struct{})}
	m, err := assembly.Merge(t.Context(), store, b.plan, b.dir)
	require.NoError(t, err)
	require.Equal(t, 100, m.Items)
	require.Equal(t, 8, store.highest)
}

// failingStore fails, or panics, on one sidecar.
type failingStore struct {
	objectstore.Store
	key  string
	fail func() error
}

func (s *failingStore) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if key == s.key {
		return nil, s.fail()
	}
	return s.Store.Get(ctx, key)
}

// The first fetch that fails is the error, wherever the merge is, and nothing stays behind.
func TestAFetchThatFailsEndsTheMerge(t *testing.T) {
	b := manyParts(t, 100)
	broken := errors.New("the bucket is gone")
	for _, at := range []int{0, 50, 99} {
		store := &failingStore{Store: b.store, key: b.plan.Parts[at].SidecarKey, fail: func() error { return broken }}
		_, err := assembly.Merge(t.Context(), store, b.plan, b.dir)
		require.ErrorIs(t, err, broken)
		store.fail = func() error { panic("no such method") }
		require.PanicsWithValue(t, "no such method", func() { _, _ = assembly.Merge(t.Context(), store, b.plan, b.dir) })
	}
	left, err := os.ReadDir(b.dir)
	require.NoError(t, err)
	for _, file := range left {
		require.NotContains(t, file.Name(), "merge-")
	}
}
