package plan

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// estate lists ConfigMaps with names of 60 characters, of which each belongs to the first one of
// its namespace.
type estate int

func (n estate) at(i int) manifest.Item {
	ns := fmt.Sprintf("namespace-%03d", i/1000)
	it := manifest.Item{
		Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: ns, Name: fmt.Sprintf("an-object-with-a-name-of-sixty-characters-in-all-%012d", i%1000),
		UID: fmt.Sprintf("uid-%032d", i), Preferred: true, Size: int64(i), Offset: int64(i) * 3, Length: 1 << 20, SHA256: fmt.Sprintf("%064x", i),
	}
	it.Path = standardPath("configmaps", ns, it.Name)
	if i%1000 > 0 {
		it.Owners = []objmeta.Owner{{APIVersion: "v1", Kind: "ConfigMap", UID: fmt.Sprintf("uid-%032d", i-i%1000)}}
	}
	return it
}

func (n estate) Items(context.Context) iter.Seq2[manifest.Item, error] {
	return func(yield func(manifest.Item, error) bool) {
		for i := int(n) - 1; i >= 0; i-- {
			if !yield(n.at(i), nil) {
				return
			}
		}
	}
}

func (n estate) plan(t *testing.T) *Plan {
	t.Helper()
	filter, err := selection.NewFilter(selection.Spec{}, []string{"*"}, nil)
	require.NoError(t, err)
	p, err := Build(t.Context(), n, Config{Filter: filter, Dir: t.TempDir()})
	require.NoError(t, err)
	return p
}

// A restore of a million objects took 243 bytes for each, most of them for names, hashes and paths
// that are looked at once.
func TestAPlanTakesFewBytesForAnObject(t *testing.T) {
	const objects = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	p := estate(objects).plan(t)
	for i := range int32(objects) { // the cache of blocks is full
		require.NotEmpty(t, p.Node(i).Name)
	}
	held := heap() - min(before, heap())
	require.Less(t, held, uint64(4<<20+32*objects), "4 MiB, and 32 bytes for each object")
	require.NoError(t, p.Close())
}

func TestWhatIsInTheFileOfAPlanIsWhatWasListed(t *testing.T) {
	t.Parallel()
	const objects = 20*1000 + 17
	list := estate(objects)
	p := list.plan(t)
	require.Equal(t, objects, p.Len())
	for i := range objects {
		want := list.at(i)
		node, ok := p.Find("configmaps", want.Namespace, want.Name)
		if !ok || int(node) != i { // require's reflection is too slow here
			t.Fatalf("object %d is node %d", i, node)
		}
		got := p.Item(node)
		got.UID, got.Owners = want.UID, want.Owners
		if i%997 == 0 {
			require.Equal(t, want, got)
		}
		owner, owns := p.Owner(want.UID)
		require.Equal(t, i%1000 == 0 && i < objects-1, owns)
		require.True(t, !owns || owner == node)
	}
	_, ok := p.Find("configmaps", "namespace-001", "an")
	require.False(t, ok)
	_, ok = p.Find("configmaps", "namespace-0001", list.at(0).Name)
	require.False(t, ok)
	require.NoError(t, p.Err())
	require.NoError(t, p.Close())
	require.Empty(t, p.Node(0).Name)
	require.ErrorIs(t, p.Err(), os.ErrClosed)
}

func TestAWorkDirectoryThatIsGoneEndsThePlan(t *testing.T) {
	t.Parallel()
	filter, err := selection.NewFilter(selection.Spec{}, []string{"*"}, nil)
	require.NoError(t, err)
	_, err = Build(t.Context(), estate(10), Config{Filter: filter, Dir: t.TempDir() + "/none"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Objects with thousands of owner references each filled the cache of blocks with gigabytes.
func TestLargeEntriesAreNotKeptInMemory(t *testing.T) {
	out, err := newSpill(t.TempDir())
	require.NoError(t, err)
	const objects = 16 * perBlock
	for range objects {
		require.NoError(t, out.add(appendDetail(nil, &detail{name: "n", uid: strings.Repeat("u", 64<<10)})))
	}
	s, err := out.complete()
	require.NoError(t, err)
	for i := range int32(objects) {
		require.Equal(t, "n", s.get(i).name)
	}
	held := 0
	for i := range s.cache {
		held += cap(s.cache[i].data)
	}
	require.LessOrEqual(t, held, cachedBlocks*largestBlock)
	require.NoError(t, s.failed())
	require.NoError(t, s.close())
}

// Each object whose entry cannot be read added one more line to the error, which a million objects
// made a gigabyte.
func TestTheFirstFailureOfThePlansFileIsKept(t *testing.T) {
	const objects = 2 * cachedBlocks * perBlock
	p := estate(objects).plan(t)
	require.NoError(t, p.Close())
	for i := range int32(objects) {
		_ = p.Node(i)
	}
	require.ErrorIs(t, p.Err(), os.ErrClosed)
	require.NotContains(t, p.Err().Error(), "\n")
}

func FuzzDetail(f *testing.F) {
	f.Add(appendDetail(nil, &detail{name: "n", path: "p", uid: "u", size: 1, offset: -2, length: 3, sha256: make([]byte, 32), links: []link{{"o", Adopt}}}))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDetail(b)
		if err != nil {
			require.ErrorIs(t, err, errDetail)
			return
		}
		again, err := decodeDetail(appendDetail(nil, &d))
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}
