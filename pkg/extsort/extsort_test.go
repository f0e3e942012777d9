package extsort_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extsort"
)

type record struct{ key, value string }

func drainStream(t *testing.T, s extsort.Stream) []record {
	t.Helper()
	var got []record
	for {
		k, v, err := s.Next()
		if errors.Is(err, io.EOF) {
			require.NoError(t, s.Close())
			return got
		}
		require.NoError(t, err)
		got = append(got, record{string(k), string(v)})
	}
}

func TestSortIsStableWhateverFitsIntoMemory(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var want []record
	for i := range 20_000 {
		want = append(want, record{fmt.Sprintf("key-%d", rng.IntN(3000)), fmt.Sprintf("value-%d%s", i, bytes.Repeat([]byte("x"), rng.IntN(50)))})
	}
	for _, memory := range []int{1, 2000, 64 << 10, 64 << 20} {
		dir := t.TempDir()
		n := want
		if memory == 1 {
			n = want[:300] // one run for each record, several merge levels
		}
		s := extsort.New(extsort.Config{Dir: dir, MemoryBytes: memory, FanIn: 3})
		for _, r := range n {
			require.NoError(t, s.Add([]byte(r.key), []byte(r.value)))
		}
		sorted, err := s.Sort()
		require.NoError(t, err)
		n = slices.Clone(n)
		slices.SortStableFunc(n, func(a, b record) int { return cmp.Compare(a.key, b.key) })
		require.Equal(t, n, drainStream(t, sorted))
		require.ErrorIs(t, s.Add(nil, nil), extsort.ErrClosed)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	s, err := extsort.New(extsort.Config{Dir: t.TempDir()}).Sort()
	require.NoError(t, err)
	require.Empty(t, drainStream(t, s))
	m, err := extsort.Merge(t.Context(), extsort.Config{Dir: t.TempDir()}, nil)
	require.NoError(t, err)
	require.Empty(t, drainStream(t, m))
}

// tracked is a stream that fails on purpose and reports whether it was closed.
type tracked struct {
	left   []string
	fail   error
	closed *int
}

func (s *tracked) Next() (key, value []byte, err error) {
	if len(s.left) == 0 {
		if s.fail != nil {
			return nil, nil, s.fail
		}
		return nil, nil, io.EOF
	}
	key, s.left = []byte(s.left[0]), s.left[1:]
	return key, key, nil
}
func (s *tracked) Close() error { *s.closed++; return nil }

func TestMergeReportsAFailingStream(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken sidecar")
	closed := 0
	var opens []extsort.Open
	for i := range 7 {
		st := &tracked{left: []string{fmt.Sprint(i)}, closed: &closed}
		if i == 4 {
			st.fail = broken
		}
		opens = append(opens, func() (extsort.Stream, error) { return st, nil })
	}
	_, err := extsort.Merge(t.Context(), extsort.Config{Dir: t.TempDir(), FanIn: 2}, opens)
	require.ErrorIs(t, err, broken)
	require.Equal(t, 7, closed)
	m, err := extsort.Merge(t.Context(), extsort.Config{Dir: t.TempDir(), FanIn: 9}, opens[:4])
	require.NoError(t, err)
	require.NoError(t, m.Close())
}

// However many streams there are, equal keys come in the order of their streams, and those that
// need not be merged into runs first are not: each stream is open once.
func TestMergeKeepsTheOrderOfStreams(t *testing.T) {
	t.Parallel()
	for n := range 60 {
		for fanIn := 2; fanIn < 10; fanIn++ {
			closed, opened := 0, 0
			var opens []extsort.Open
			for i := range n {
				s := &numbered{n: i, closed: &closed}
				opens = append(opens, func() (extsort.Stream, error) { opened++; return s, nil })
			}
			m, err := extsort.Merge(t.Context(), extsort.Config{Dir: t.TempDir(), FanIn: fanIn}, opens)
			require.NoError(t, err)
			for i, r := range drainStream(t, m) {
				require.Equal(t, record{"same", fmt.Sprint(i)}, r)
			}
			require.Equal(t, n, opened)
			require.Equal(t, n, closed)
		}
	}
}

// numbered is a stream of one record, which says which stream it is.
type numbered struct {
	n      int
	ended  bool
	closed *int
}

func (s *numbered) Next() (key, value []byte, err error) {
	if s.ended {
		return nil, nil, io.EOF
	}
	s.ended = true
	return []byte("same"), fmt.Append(nil, s.n), nil
}

func (s *numbered) Close() error { *s.closed++; return nil }

func TestMergeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	closed := 0
	keys := make([]string, 5000)
	m, err := extsort.Merge(ctx, extsort.Config{Dir: t.TempDir()}, []extsort.Open{func() (extsort.Stream, error) { return &tracked{left: keys, closed: &closed}, nil }})
	require.NoError(t, err)
	stop := errors.New("job lost")
	cancel(stop)
	for err == nil {
		_, _, err = m.Next()
	}
	require.ErrorIs(t, err, stop)
	require.NoError(t, m.Close())
	require.Equal(t, 1, closed)
}

func TestWorkDirGone(t *testing.T) {
	t.Parallel()
	s := extsort.New(extsort.Config{Dir: t.TempDir() + "/none", MemoryBytes: 1})
	require.NoError(t, s.Add([]byte("a"), nil))
	require.ErrorIs(t, s.Add([]byte("b"), nil), os.ErrNotExist)
	require.NoError(t, s.Close())
}
