package plan

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// estate lists ConfigMaps with names of 60 characters, of which three of ten belong to the first one
// of their namespace.
type estate int

func (n estate) itemAt(i int) manifest.Item {
	ns := fmt.Sprintf("namespace-%03d", i/1000)
	it := manifest.Item{
		Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: ns, Name: fmt.Sprintf("an-object-with-a-name-of-sixty-characters-in-all-%012d", i%1000),
		UID: fmt.Sprintf("uid-%032d", i), Preferred: true, Size: int64(i), Offset: int64(i) * 3, Length: 1 << 20, SHA256: fmt.Sprintf("%064x", i),
	}
	it.Path = standardPath("configmaps", ns, it.Name)
	if i%1000 > 0 && i%10 < 3 {
		it.Owners = []objmeta.Owner{{APIVersion: "v1", Kind: "ConfigMap", UID: fmt.Sprintf("uid-%032d", i-i%1000)}}
	}
	return it
}

func (n estate) Items(context.Context) iter.Seq2[manifest.Item, error] {
	return func(yield func(manifest.Item, error) bool) {
		for i := int(n) - 1; i >= 0; i-- {
			if !yield(n.itemAt(i), nil) {
				return
			}
		}
	}
}

func (n estate) newPlan(t *testing.T) *Plan {
	t.Helper()
	filter, err := selection.NewFilter(selection.Spec{}, []string{"*"}, nil)
	require.NoError(t, err)
	p, err := Build(t.Context(), n, Config{Filter: filter})
	require.NoError(t, err)
	return p
}

// Promise P7 leaves 256 bytes for an object, of which the objects that wait for owners need 62.
func TestAPlanTakesFewBytesForAnObject(t *testing.T) {
	const objects = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	p := estate(objects).newPlan(t)
	held := heap() - min(before, heap())
	require.Less(t, held, uint64(192*objects), "192 bytes for each object")
	require.Equal(t, objects, p.Len())
}

func TestTheNamesOfAPlanTakeFewerBytes(t *testing.T) {
	const objects = 5_000
	p := estate(objects).newPlan(t)
	names := p.Names()
	held := cap(names.nodes) * int(unsafe.Sizeof(planNode{}))
	for _, chunk := range names.details.chunks {
		held += cap(chunk)
	}
	require.Less(t, held, 100*objects, "the names have 61 bytes")
	for i := range int32(objects) {
		want := []string{p.Name(i), p.Source(i), p.Target(i), p.Kind(i).String()}
		if got := []string{names.Name(i), names.Source(i), names.Target(i), names.Kind(i).String()}; !slices.Equal(want, got) {
			t.Fatalf("%v became %v", want, got)
		}
	}
	require.Equal(t, []int{p.Len(), p.Selected()}, []int{names.Len(), names.Selected()})
}

func TestAPlanHoldsWhatWasListed(t *testing.T) {
	t.Parallel()
	const objects = 20*1000 + 17
	list := estate(objects)
	p := list.newPlan(t)
	require.Equal(t, objects, p.Len())
	for i := range objects {
		want := list.itemAt(i)
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
		require.Equal(t, i%1000 == 0, owns)
		require.True(t, !owns || owner == node)
	}
	_, ok := p.Find("configmaps", "namespace-001", "an")
	require.False(t, ok)
	_, ok = p.Find("configmaps", "namespace-0001", list.itemAt(0).Name)
	require.False(t, ok)
}

func TestAnEntryMayBeLargerThanAChunk(t *testing.T) {
	t.Parallel()
	var a arena
	large := &nodeDetail{
		name: "n", uid: strings.Repeat("u", 2*chunkBytes), path: "p", size: 1, offset: -2, length: 3, sha256: make([]byte, 32),
		links: []ownerLink{{70000, Adopt}, {3, Late}},
	}
	for _, want := range []*nodeDetail{{name: "before", sha256: []byte{}, links: []ownerLink{}}, large, {name: "behind", sha256: []byte{}, links: []ownerLink{}}} {
		reader := a.detailAt(a.add(appendDetail(nil, want)))
		got := reader.readDetail()
		got.links = reader.readLinks()
		require.Equal(t, want, &got)
	}
}
