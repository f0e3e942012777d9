package relink

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func ref(node int32, name string) Reference {
	return Reference{Node: node, Value: map[string]any{"apiVersion": "old/v1", "kind": "Old", "name": name, "uid": "old-" + name, "controller": true}}
}

func owner(uid, namespace string) *Owner {
	return &Owner{UID: "new", APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: uid}
}

func TestKnownOwnerIsWrittenWithItsNewIdentity(t *testing.T) {
	b := New()
	require.Empty(t, b.Settle(1, owner("d", "a")))
	now, later, lost := b.Known("a", []Reference{ref(1, "d")})
	require.Empty(t, later)
	require.Empty(t, lost)
	require.Equal(t, []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "new", "controller": true}}, now)
	require.Nil(t, b.Await(5, "child", "a", now, later))
}

func TestLateOwnersArePatchedTogether(t *testing.T) {
	b := New()
	b.Settle(1, owner("one", "a"))
	now, later, _ := b.Known("a", []Reference{ref(1, "one"), ref(2, "two"), ref(3, "three")})
	require.Len(t, now, 1)
	require.Len(t, later, 2)
	require.Nil(t, b.Await(9, "child", "a", now, later))
	require.Empty(t, b.Settle(2, owner("two", "a")), "one owner is still open")
	patches := b.Settle(3, owner("three", ""))
	require.Len(t, patches, 1)
	require.Equal(t, int32(9), patches[0].Child)
	require.EqualValues(t, "child", patches[0].UID)
	require.Len(t, patches[0].References, 3)
	for _, r := range patches[0].References {
		require.Equal(t, "new", r.(map[string]any)["uid"], "never an old identity")
	}
}

func TestOwnerSettledBetweenCreateAndAwait(t *testing.T) {
	b := New()
	now, later, _ := b.Known("a", []Reference{ref(1, "d")})
	require.Len(t, later, 1)
	b.Settle(1, owner("d", "a"))
	patch := b.Await(9, "child", "a", now, later)
	require.NotNil(t, patch)
	require.Len(t, patch.References, 1)
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
	require.Nil(t, b.Await(9, "child", "a", nil, later))
	patches := b.Settle(3, nil)
	require.Len(t, patches, 1)
	require.Empty(t, patches[0].References)
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
	require.Nil(t, b.Await(9, "child", "a", nil, later))
	require.Len(t, b.Settle(1, owner("d", "a")), 1)
}
