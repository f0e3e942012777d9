package relink

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func ref(node int32, name string) Reference {
	return Reference{Node: node, Value: map[string]any{"apiVersion": "old/v1", "kind": "Old", "name": name, "uid": "old-" + name, "controller": true}}
}

func owner(uid, namespace string) *Owner {
	return &Owner{UID: "new", APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: uid}
}

func born(node int32, base []any) Child {
	return Child{Node: node, UID: "child", Version: "1", Base: base, Namespace: "a"}
}

func TestKnownOwnerIsWrittenWithItsNewIdentity(t *testing.T) {
	b := New()
	require.Empty(t, b.Settle(1, owner("d", "a")))
	now, later, lost := b.Known("a", []Reference{ref(1, "d")})
	require.Empty(t, later)
	require.Empty(t, lost)
	require.Equal(t, []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "new", "controller": true}}, now)
	require.Nil(t, b.Await(born(5, now), later))
}

func TestLateOwnersArePatchedTogether(t *testing.T) {
	b := New()
	b.Settle(1, owner("one", "a"))
	now, later, _ := b.Known("a", []Reference{ref(1, "one"), ref(2, "two"), ref(3, "three")})
	require.Len(t, now, 1)
	require.Len(t, later, 2)
	require.Nil(t, b.Await(born(9, now), later))
	require.Empty(t, b.Settle(2, owner("two", "a")), "one owner is still open")
	patches := b.Settle(3, owner("three", ""))
	require.Len(t, patches, 1)
	require.Equal(t, int32(9), patches[0].Node)
	require.EqualValues(t, "child", patches[0].UID)
	require.Len(t, patches[0].Base, 1)
	require.Len(t, patches[0].Missing, 2)
	for _, r := range patches[0].Missing {
		require.Equal(t, "new", r.(map[string]any)["uid"], "never an old identity")
	}
}

func TestOwnerSettledBetweenCreateAndAwait(t *testing.T) {
	b := New()
	now, later, _ := b.Known("a", []Reference{ref(1, "d")})
	require.Len(t, later, 1)
	b.Settle(1, owner("d", "a"))
	patch := b.Await(born(9, now), later)
	require.NotNil(t, patch)
	require.Len(t, patch.Missing, 1)
}

func TestOwnersThatCannotOwn(t *testing.T) {
	b := New()
	b.Settle(1, nil)
	b.Settle(2, owner("d", "other"))
	now, later, lost := b.Known("a", []Reference{ref(1, "failed"), ref(2, "elsewhere")})
	require.Empty(t, now)
	require.Empty(t, later)
	require.Len(t, lost, 2)
	require.Equal(t, "Old failed", lost[0].Owner)

	_, later, _ = b.Known("a", []Reference{ref(3, "x")})
	require.Nil(t, b.Await(born(9, nil), later))
	patches := b.Settle(3, nil)
	require.Len(t, patches, 1)
	require.Empty(t, patches[0].Missing)
	require.Len(t, patches[0].Lost, 1)
}

func TestClusterScopedChildOfNamespacedOwner(t *testing.T) {
	b := New()
	b.Settle(1, owner("d", "a"))
	_, _, lost := b.Known("", []Reference{ref(1, "d")})
	require.Len(t, lost, 1)
}

func TestTwoReferencesToOneOwner(t *testing.T) {
	b := New()
	_, later, _ := b.Known("a", []Reference{ref(1, "d"), ref(1, "d")})
	require.Nil(t, b.Await(born(9, nil), later))
	require.Len(t, b.Settle(1, owner("d", "a")), 1)
}

// Dependants come before their owner now; one that is in the cluster already owns them from their creation, so that its
// controller never sees objects that seem to be strangers'. Each owner is looked for once, however many it owns.
func TestAnOwnerFoundInTheClusterIsWrittenAtOnce(t *testing.T) {
	b := New()
	looks := 0
	for range 3 {
		b.Look(1, func() *Owner { looks++; return owner("d", "a") })
		b.Look(2, func() *Owner { looks++; return nil })
	}
	require.Equal(t, 2, looks)
	now, later, lost := b.Known("a", []Reference{ref(1, "d"), ref(2, "absent")})
	require.Len(t, now, 1)
	require.Len(t, later, 1)
	require.Empty(t, lost)
	b.Settle(1, nil)
	b.Look(1, func() *Owner { t.Error("it has an outcome"); return nil })
	_, _, lost = b.Known("a", []Reference{ref(1, "d")})
	require.Len(t, lost, 1, "its outcome counts more than what was found")
}

func TestALookIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		found := make(chan struct{})
		go b.Look(1, func() *Owner { <-found; return owner("d", "a") })
		synctest.Wait()
		var now []any
		go func() {
			b.Look(1, func() *Owner { t.Error("looked twice"); return nil })
			now, _, _ = b.Known("a", []Reference{ref(1, "d")})
		}()
		synctest.Wait()
		require.Empty(t, now)
		close(found)
		synctest.Wait()
		require.Len(t, now, 1)
	})
}
