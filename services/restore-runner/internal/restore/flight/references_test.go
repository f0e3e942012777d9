package flight

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func newReference(node int32, name string) Reference {
	return Reference{Node: node, Value: map[string]any{"apiVersion": "old/v1", "kind": "Old", "name": name, "uid": "old-" + name, "controller": true}}
}

func newOwner(uid, namespace string) *Owner {
	return &Owner{UID: "new", APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: uid}
}

func requireOpen(t *testing.T, b *Book, c *Child, later []Reference) {
	t.Helper()
	require.False(t, b.Await(c, later))
}

func newChild(node int32, base []any) *Child {
	return &Child{Node: node, UID: "child", Version: "1", Base: base, Namespace: "a"}
}

func TestKnownOwnerIsWrittenWithItsNewIdentity(t *testing.T) {
	b := NewBook()
	require.Empty(t, b.Resolve(1, newOwner("d", "a")))
	now, later, lost := b.SplitReferences("a", []Reference{newReference(1, "d")})
	require.Empty(t, later)
	require.Empty(t, lost)
	require.Equal(t, []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "new", "controller": true}}, now)
	requireOpen(t, b, newChild(5, now), later)
}

func TestLateOwnersArePatchedTogether(t *testing.T) {
	b := NewBook()
	b.Resolve(1, newOwner("one", "a"))
	now, later, _ := b.SplitReferences("a", []Reference{newReference(1, "one"), newReference(2, "two"), newReference(3, "three")})
	require.Len(t, now, 1)
	require.Len(t, later, 2)
	requireOpen(t, b, newChild(9, now), later)
	require.Empty(t, b.Resolve(2, newOwner("two", "a")), "one owner is still open")
	due := b.Resolve(3, newOwner("three", ""))
	require.Len(t, due, 1)
	require.Equal(t, int32(9), due[0].Node)
	require.EqualValues(t, "child", due[0].UID)
	require.Len(t, due[0].Base, 1)
	missing, lost := b.Missing(due[0])
	require.Empty(t, lost)
	require.Equal(t, []any{
		map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "two", "uid": "new", "controller": true},
		map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "three", "uid": "new", "controller": true},
	}, missing, "never an old identity")
}

func TestOwnerSettledBetweenCreateAndAwait(t *testing.T) {
	b := NewBook()
	now, later, _ := b.SplitReferences("a", []Reference{newReference(1, "d")})
	require.Len(t, later, 1)
	b.Resolve(1, newOwner("d", "a"))
	child := newChild(9, now)
	require.True(t, b.Await(child, later))
	missing, _ := b.Missing(child)
	require.Len(t, missing, 1)
}

func TestOwnersThatCannotOwn(t *testing.T) {
	b := NewBook()
	b.Resolve(1, nil)
	b.Resolve(2, newOwner("d", "other"))
	now, later, lost := b.SplitReferences("a", []Reference{newReference(1, "failed"), newReference(2, "elsewhere")})
	require.Empty(t, now)
	require.Empty(t, later)
	require.Len(t, lost, 2)
	require.EqualValues(t, 1, lost[0].Owner)

	_, later, _ = b.SplitReferences("a", []Reference{newReference(3, "x")})
	requireOpen(t, b, newChild(9, nil), later)
	due := b.Resolve(3, nil)
	require.Len(t, due, 1)
	missing, lost := b.Missing(due[0])
	require.Empty(t, missing)
	require.Len(t, lost, 1)
}

func TestClusterScopedChildOfNamespacedOwner(t *testing.T) {
	b := NewBook()
	b.Resolve(1, newOwner("d", "a"))
	_, _, lost := b.SplitReferences("", []Reference{newReference(1, "d")})
	require.Len(t, lost, 1)
}

func TestTwoReferencesToOneOwner(t *testing.T) {
	b := NewBook()
	_, later, _ := b.SplitReferences("a", []Reference{newReference(1, "d"), newReference(1, "d")})
	requireOpen(t, b, newChild(9, nil), later)
	require.Len(t, b.Resolve(1, newOwner("d", "a")), 1)
}

// Dependants come before their owner now; they are created with the reference to one that is in the
// cluster already, so that its controller never reads them without it. Each owner is read once,
// however many it owns.
func TestAnOwnerFoundInTheClusterIsWrittenAtOnce(t *testing.T) {
	b := NewBook()
	looks := 0
	for range 3 {
		b.LookUpOwner(1, func() *Owner { looks++; return newOwner("d", "a") })
		b.LookUpOwner(2, func() *Owner { looks++; return nil })
	}
	require.Equal(t, 2, looks)
	now, later, lost := b.SplitReferences("a", []Reference{newReference(1, "d"), newReference(2, "absent")})
	require.Len(t, now, 1)
	require.Len(t, later, 1)
	require.Empty(t, lost)
	b.Resolve(1, nil)
	b.LookUpOwner(1, func() *Owner { t.Error("it has an outcome"); return nil })
	_, _, lost = b.SplitReferences("a", []Reference{newReference(1, "d")})
	require.Len(t, lost, 1, "its outcome counts more than what was found")
}

func TestALookIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBook()
		found := make(chan struct{})
		go b.LookUpOwner(1, func() *Owner { <-found; return newOwner("d", "a") })
		synctest.Wait()
		var now []any
		go func() {
			b.LookUpOwner(1, func() *Owner { t.Error("looked twice"); return nil })
			now, _, _ = b.SplitReferences("a", []Reference{newReference(1, "d")})
		}()
		synctest.Wait()
		require.Empty(t, now)
		close(found)
		synctest.Wait()
		require.Len(t, now, 1)
	})
}

func TestOptionalFieldsOfAReferenceComeBack(t *testing.T) {
	b := NewBook()
	block := newReference(1, "d")
	block.Value["controller"], block.Value["blockOwnerDeletion"] = false, true
	plain := Reference{Node: 1, Value: map[string]any{"kind": "Old"}}
	child := newChild(9, nil)
	requireOpen(t, b, child, []Reference{block, plain})
	b.Resolve(1, newOwner("d", "a"))
	missing, _ := b.Missing(child)
	require.Equal(t, []any{
		map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "new", "controller": false, "blockOwnerDeletion": true},
		map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "new"},
	}, missing)
}

// Dependants come before their owner, so that all objects of an operator wait for it: each was kept
// in memory with its references, a kilobyte of maps. Where 30 in 100 objects wait, 208 bytes are 62
// of the 256 bytes for an object that promise P7 leaves.
func TestThoseThatWaitTakeFewBytes(t *testing.T) {
	const children = 100_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	b := NewBook()
	before := heap()
	for i := range int32(children) {
		child := newChild(i, nil)
		child.UID, child.Version = types.UID(fmt.Sprintf("%036d", i)), fmt.Sprintf("%07d", i)
		requireOpen(t, b, child, []Reference{newReference(children+i%10, "an-owner-with-a-name-of-forty-characters")})
	}
	held := heap() - min(before, heap())
	require.Less(t, held, uint64(208*children))
	due := b.Resolve(children+3, newOwner("new", "a"))
	require.Len(t, due, children/10)
	require.Equal(t, int32(13), due[1].Node)
}
