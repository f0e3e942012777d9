package itemaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

func TestWithADamagedManifestTheTarballIsRead(t *testing.T) {
	for name, damage := range map[string]func(manifest []byte) []byte{
		"no manifest at all": func([]byte) []byte { return []byte("x") },
		"its end is gone":    func(m []byte) []byte { return m[:len(m)-10] },
		"an item of it":      func(m []byte) []byte { m[len(m)/3] ^= 0xff; return m },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			all := backuptest.Objects("pods", "Pod", "a", 2500)
			backuptest.Write(t, b.store, "b", all...)
			m, _ := b.store.Bytes(layout.BackupManifest("b"))
			b.store.Set(layout.BackupManifest("b"), damage(m))
			b.registerAction("a.io/b", everything, failForObject("Pod a/o-000000", errBoom))
			require.Equal(t, []string{errBoom.Error()}, errorMessages(t, b.runAttempt(t.Context())), "counted once")
			seen := map[string]struct{}{}
			for _, line := range b.takeNotes() {
				seen[line] = struct{}{}
			}
			require.Len(t, seen, len(all))
		})
	}
}

// The tarball was written anew by another program.
func TestAManifestOfAnotherTarballIsNotUsed(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("p")...)
	backuptest.WriteVelero(t, b.store, "b", podItems("q"))
	b.registerAction("a.io/b", everything, nil)
	require.NoError(t, b.runAttempt(t.Context()))
	require.Equal(t, []string{"a.io/b Pod a/q"}, b.takeNotes())
}

func TestADamagedItemCostsThatItemAnError(t *testing.T) {
	b := newBed(t)
	all := backuptest.Objects("pods", "Pod", "a", 300)
	for i := range all {
		all[i].Spec = map[string]any{"pad": strings.Repeat(fmt.Sprint(i), 200)}
	}
	backuptest.Write(t, b.store, "b", all...)
	packed, _ := b.store.Bytes(layout.BackupTarball("b"))
	packed[len(packed)/2] ^= 0xff
	b.store.Set(layout.BackupTarball("b"), packed)
	b.registerAction("a.io/b", everything, nil)
	err := b.runAttempt(t.Context())
	require.True(t, errors.Is(err, tarball.ErrCorrupt) || errors.Is(err, tarball.ErrMismatch), err)
	require.ErrorContains(t, err, "resources/pods/namespaces/a/o-")
	first := len(b.takeNotes())
	require.Greater(t, first, 150, "its neighbours in the same gzip member are lost, the others are not")
	require.Less(t, first, 300)
}

func TestADamagedTarballIsAnError(t *testing.T) {
	b := newBed(t)
	backuptest.WriteVelero(t, b.store, "b", backuptest.Objects("pods", "Pod", "a", 500))
	packed, _ := b.store.Bytes(layout.BackupTarball("b"))
	b.store.Set(layout.BackupTarball("b"), packed[:len(packed)/2])
	b.registerAction("a.io/b", everything, nil)
	require.ErrorIs(t, b.runAttempt(t.Context()), tarball.ErrCorrupt)
	require.NotEmpty(t, b.takeNotes())
}

func TestForeignEntries(t *testing.T) {
	b := newBed(t)
	backuptest.WriteVelero(t, b.store, "b", podItems("p"),
		[2]string{"../../etc/passwd", "x"}, [2]string{"resources/pods/namespaces/a/text.txt", "x"}, [2]string{"resources/pods/namespaces/../x.json", "{}"})
	b.registerAction("a.io/b", everything, nil)
	require.NoError(t, b.runAttempt(t.Context()), "what is no object is nobody's")
	require.Equal(t, []string{"a.io/b Pod a/p"}, b.takeNotes())

	b = newBed(t)
	backuptest.WriteVelero(t, b.store, "b", podItems("p"),
		[2]string{"resources/pods/namespaces/a/huge.json", strings.Repeat("0", 33<<20)}, [2]string{"resources/pods/namespaces/a/odd.json", `{"metadata":{"labels":7}}`})
	b.registerAction("a.io/b", everything, nil)
	err := b.runAttempt(t.Context())
	require.ErrorIs(t, err, tarball.ErrTooLarge)
	require.ErrorContains(t, err, "resources/pods/namespaces/a/odd.json")
	require.Equal(t, []string{"a.io/b Pod a/p"}, b.takeNotes())
}

// TestABrokenConnectionIsOpenedAgain: actions may work for hours while the other end of a
// connection waits.
func TestABrokenConnectionIsOpenedAgain(t *testing.T) {
	b := newBed(t)
	all := backuptest.Objects("pods", "Pod", "a", 200)
	for i := range all {
		all[i].Spec = map[string]any{"pad": randomText(i, 20<<10)}
	}
	backuptest.WriteVelero(t, b.store, "b", all)
	info, err := b.store.Stat(t.Context(), layout.BackupTarball("b"))
	require.NoError(t, err)
	require.Greater(t, info.Size, int64(1<<20), "more than is read ahead")
	b.registerAction("a.io/b", everything, nil)
	reads := 0
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpRead {
			if reads++; reads == 3 || reads == 9 {
				return errStore
			}
		}
		return nil
	})
	require.NoError(t, b.runAttempt(t.Context()))
	require.Len(t, b.takeNotes(), 200)
	require.Equal(t, 3, b.store.Calls(memstore.OpGet))
}

func TestAStoreThatFailsEndsTheAttempt(t *testing.T) {
	inBothWays(t, backuptest.Objects("pods", "Pod", "a", 20), func(b *bed) {
		b.registerAction("a.io/b", everything, nil)
		b.injectFault(memstore.OpRead, layout.BackupTarball("b"), errStore)
		require.ErrorIs(b.t, b.runAttempt(b.t.Context()), errStore)
		require.Empty(b.t, b.takeNotes())
		b.store.Inject(nil)
		require.NoError(b.t, b.runAttempt(b.t.Context()))
		require.Len(b.t, b.takeNotes(), 20)
	})
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("p")...)
	b.registerAction("a.io/b", everything, nil)
	b.injectFault(memstore.OpGet, layout.BackupManifest("b"), errStore)
	require.ErrorIs(t, b.runAttempt(t.Context()), errStore, "a manifest that cannot be reached is there all the same")
}

// randomText is text that does not compress.
func randomText(seed, size int) string {
	var out bytes.Buffer
	for x := uint64(seed)*2654435761 + 1; out.Len() < size; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		fmt.Fprintf(&out, "%x", x)
	}
	return out.String()
}

func TestADiscoveryThatFailsEndsTheAttempt(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("p")...)
	b.registerAction("a.io/b", everything, nil)
	b.r.Discover = func(context.Context) (selection.Resolver, error) { return nil, errStore }
	require.ErrorIs(t, b.runAttempt(t.Context()), errStore)
	require.Empty(t, b.takeNotes())
}
