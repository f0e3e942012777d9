package job

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// Cut off from bucket and API server in the middle of the commit, past its claim:
// another holder ends the backup, and it is deleted. The commit is not repeated.
func TestACommitIsNotRepeatedWithoutTheClaim(t *testing.T) {
	w, b := richWorld(t, 1)
	next := New(w.Config)
	next.Instance, next.WorkDir = &instance{name: "next", alive: map[string]bool{}}, t.TempDir()
	begun, lost := false, false
	w.instance.confirm = func(client.Object) error {
		if lost {
			return claim.ErrLost
		}
		return nil
	}
	w.store.Inject(func(op memstore.Op, key string) error {
		if begun || op != memstore.OpCreate || key != layout.BackupMetadata("b1") {
			return nil
		}
		begun = true
		require.NoError(t, next.Run(t.Context(), "b1", b.UID))
		lost = true
		require.NoError(t, w.client.Delete(t.Context(), w.read(t, b)))
		for _, k := range w.store.Keys() {
			require.NoError(t, w.store.Delete(t.Context(), k))
		}
		return errors.New("no route to the bucket")
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.True(t, lost)
	require.Empty(t, w.store.Keys())
}

// A backup deleted under a live claim, of which no Lease tells, is not committed.
func TestABackupThatIsGoneIsNotCommitted(t *testing.T) {
	for name, tt := range map[string]struct {
		err error
		at  string
	}{
		"complete": {at: layout.BackupLog("b1")},
		"failed":   {err: errors.New("no catalog"), at: layout.Composition("b1", "uid-1")},
	} {
		t.Run(name, func(t *testing.T) {
			w, b := richWorld(t, 1)
			w.Cluster = &unserved{w.Cluster, tt.err}
			gone := false
			w.store.Inject(func(op memstore.Op, key string) error {
				if !gone && op == memstore.OpCreate && key == tt.at {
					gone = true
					require.NoError(t, w.client.Delete(t.Context(), w.read(t, b)))
				}
				return nil
			})
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.True(t, gone)
			require.NotContains(t, w.store.Keys(), layout.BackupMetadata("b1"))
		})
	}
}

// A runner that wakes up in its commit to find that of another, which has ended
// the backup, does not count and announce that end again.
func TestAnEndIsToldOnceByWhoeverWroteIt(t *testing.T) {
	w, b := richWorld(t, 1)
	next := New(w.Config)
	next.Instance, next.WorkDir = &instance{name: "next", alive: map[string]bool{}}, t.TempDir()
	begun := false
	w.store.Inject(func(op memstore.Op, key string) error {
		if !begun && op == memstore.OpCreate && key == layout.BackupMetadata("b1") {
			begun = true
			require.NoError(t, next.Run(t.Context(), "b1", b.UID))
		}
		return nil
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.True(t, begun)
	require.Equal(t, []string{"InProgress", "PartiallyFailed"}, w.events.phases)
}
