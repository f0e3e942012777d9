package operation_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// An operation that was begun once more is another one from then on, for every reader of the records.
func TestAnOperationThatWasBegunOnceMore(t *testing.T) {
	store, l := sealed(t, "1", "2")
	record := func(e operation.Event) { require.NoError(t, l.Append(t.Context(), e)) }
	home := &operation.Home{Instance: "j", Process: "q"}
	record(operation.Event{Restarted: &operation.Restarted{ID: "x"}})
	require.Equal(t, "1", l.Operations()[0].ID, "nothing said that it would be")
	record(operation.Event{Time: now, Restart: &operation.Restart{Reason: "lost", Instance: "j"}})
	record(operation.Event{Time: now.Add(time.Hour), Restart: &operation.Restart{Reason: "lost again", Instance: "k"}})
	require.True(t, open(t, store).States()[0].Restarting())
	record(operation.Event{Restarted: &operation.Restarted{ID: "3", Home: home}})
	record(operation.Event{Restarted: &operation.Restarted{ID: "4"}})
	for _, l := range []*operation.Log{l, open(t, store)} {
		require.Equal(t, []any{"3", home}, []any{l.Operations()[0].ID, l.Operations()[0].Home})
		require.Equal(t, "2", l.Operations()[1].ID)
		s := l.States()[0]
		require.Equal(t, operation.New, s.Phase)
		require.True(t, s.Restarted)
		require.False(t, s.Restarting())
		require.Equal(t, "lost", s.Restart.Reason, "there is one intent")
		require.True(t, s.RestartTime.Equal(now))
	}
}

func TestTheFirstInputStands(t *testing.T) {
	store := memstore.New()
	_, err := operation.ReadInput(t.Context(), store, job, "k")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	for _, text := range []string{`{"n":1}`, `{"n":2}`} {
		require.NoError(t, operation.KeepInput(t.Context(), store, job, "k", operation.Input{Item: json.RawMessage(text)}))
	}
	in, err := operation.ReadInput(t.Context(), store, job, "k")
	require.NoError(t, err)
	require.JSONEq(t, `{"n":1}`, string(in.Item))
	require.Empty(t, in.FromBackup)

	large := json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)
	require.ErrorIs(t, operation.KeepInput(t.Context(), store, job, "l", operation.Input{Item: large}), document.ErrTooLarge)
	key := store.Keys()[0]
	for _, text := range []string{`{}`, `{"formatVersion":1,"uid":"u1"}`, `{"formatVersion":1,"uid":"u2","item":{}}`, `{"formatVersion":2,"uid":"u1","item":{}}`} {
		store.Set(key, []byte(text))
		_, err = operation.ReadInput(t.Context(), store, job, "k")
		require.ErrorIs(t, err, operation.ErrDamaged, text)
	}
}
