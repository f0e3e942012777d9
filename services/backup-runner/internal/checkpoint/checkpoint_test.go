package checkpoint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func TestRecordsAreNumberedWithoutGaps(t *testing.T) {
	store := memstore.New()
	w := NewWriter(store, "b", "u", 3)
	away := errors.New("away")
	store.Inject(func(memstore.Op, string) error { return away })
	_, err := w.Append(t.Context(), Record{})
	require.ErrorIs(t, err, away)
	store.Inject(nil)
	for i := range 3 {
		key, err := w.Append(t.Context(), Record{Part: Part{Items: i}})
		require.NoError(t, err)
		require.Equal(t, layout.Checkpoint("b", "u", 3, int64(i+1)), key)
		rec, err := Read(t.Context(), store, key)
		require.NoError(t, err)
		require.Equal(t, Record{FormatVersion: 1, Backup: "b", UID: "u", Epoch: 3, Seq: int64(i + 1), Part: Part{Items: i}}, rec)
	}
}

func TestClosedEpoch(t *testing.T) {
	store := memstore.New()
	_, err := NewWriter(store, "b", "u", 1).Append(t.Context(), Record{Part: Part{Items: 1}})
	require.NoError(t, err)
	_, err = NewWriter(store, "b", "u", 1).Append(t.Context(), Record{Part: Part{Items: 2}})
	require.ErrorIs(t, err, ErrFenced)
	_, err = NewWriter(store, "b", "u", 2).Append(t.Context(), Record{})
	require.NoError(t, err, "another epoch is not affected")
}

func TestCompositionIsFixedOnce(t *testing.T) {
	store := memstore.New()
	_, err := Fixed(t.Context(), store, "b", "u")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	first, err := Fix(t.Context(), store, Composition{Backup: "b", UID: "u", Phase: velerov1.BackupPhaseCompleted, Checkpoints: []string{"x"}})
	require.NoError(t, err)
	second, err := Fix(t.Context(), store, Composition{Backup: "b", UID: "u", Phase: velerov1.BackupPhasePartiallyFailed})
	require.NoError(t, err)
	require.Equal(t, first, second)
}

func TestDamagedRecords(t *testing.T) {
	store := memstore.New()
	for content, want := range map[string]string{"{": "unexpected end", `{"formatVersion":9}`: "formatVersion"} {
		store.Set(layout.Composition("b", "u"), []byte(content))
		_, err := Fixed(t.Context(), store, "b", "u")
		require.ErrorContains(t, err, want)
		_, err = Read(t.Context(), store, layout.Composition("b", "u"))
		require.ErrorContains(t, err, want)
	}
	store.Set(layout.Composition("b", "u"), []byte(`{"formatVersion":1,"backup":"other","uid":"u"}`))
	_, err := Fixed(t.Context(), store, "b", "u")
	require.ErrorContains(t, err, "other")
}
