package journal_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

type note struct{ Text string }

var notes = journal.DocumentKind[note]{Name: "note", MaxBytes: 100, MaxDecoded: 1 << 10}

func acceptNote(*note) error { return nil }

func TestTheFirstDocumentStands(t *testing.T) {
	store := memstore.New()
	_, err := notes.Read(t.Context(), store, "k", acceptNote)
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	for _, text := range []string{"first", "second"} {
		got, err := notes.Create(t.Context(), store, "k", note{text}, acceptNote)
		require.NoError(t, err)
		require.Equal(t, "first", got.Text)
	}
	require.ErrorIs(t, notes.CreateNew(t.Context(), store, "k", note{"third"}), objectstore.ErrExists)
	require.NoError(t, notes.CreateNew(t.Context(), store, "l", note{"other"}))
}

// What no reader takes is not written: the place would be taken for good.
func TestADocumentThatIsTooLargeIsNotWritten(t *testing.T) {
	store := memstore.New()
	_, err := notes.Create(t.Context(), store, "k", note{strings.Repeat("x", 100)}, acceptNote)
	require.ErrorIs(t, err, journal.ErrDocumentTooLarge)
	require.ErrorIs(t, notes.CreateNew(t.Context(), store, "k", note{strings.Repeat("x", 100)}), journal.ErrDocumentTooLarge)
	require.Empty(t, store.Keys())
}

func TestADocumentThatIsNotUnderstoodIsDamaged(t *testing.T) {
	foreign := errors.New("it belongs to another job")
	for name, c := range map[string]struct {
		text  string
		check func(*note) error
	}{
		"no JSON": {"{", acceptNote}, "too large": {`{"Text":"` + strings.Repeat("x", 100) + `"}`, acceptNote},
		"too large decoded": {"[" + strings.Repeat("{},", 30) + "{}]", acceptNote}, "refused": {"{}", func(*note) error { return foreign }},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			store.Set("k", []byte(c.text))
			_, err := notes.Read(t.Context(), store, "k", c.check)
			require.ErrorIs(t, err, journal.ErrDocumentDamaged)
			require.ErrorContains(t, err, "note")
			got, err := notes.Create(t.Context(), store, "k", note{"x"}, c.check)
			require.ErrorIs(t, err, journal.ErrDocumentDamaged)
			require.Empty(t, got)
		})
	}
}
