package operation_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

var (
	job = operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u1"}
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func operationList(ids ...string) operation.List {
	l := operation.List{Job: job, Epoch: 1}
	for _, id := range ids {
		l.Operations = append(l.Operations, operation.Operation{Action: "a/b", ID: id, Created: now, Item: operation.Resource{Resource: "pods", Namespace: "n", Name: id}})
	}
	return l
}

func sealedLog(t *testing.T, ids ...string) (*memstore.Store, *operation.Log) {
	t.Helper()
	store := memstore.New()
	_, err := operation.Seal(t.Context(), store, operationList(ids...))
	require.NoError(t, err)
	return store, openLog(t, store)
}

func openLog(t *testing.T, store objectstore.Store) *operation.Log {
	t.Helper()
	l, err := operation.Open(t.Context(), store, job)
	require.NoError(t, err)
	return l
}

func TestTheFirstListIsTheList(t *testing.T) {
	store, _ := sealedLog(t, "1", "2")
	got, err := operation.Seal(t.Context(), store, operationList("3"))
	require.NoError(t, err)
	require.Len(t, got.Operations, 2)
	require.Equal(t, "1", got.Operations[0].ID)
}

// A job whose list is missing has unknown operations: an error, and no empty list.
func TestAMissingListIsNoEmptyOne(t *testing.T) {
	_, err := operation.Open(t.Context(), memstore.New(), job)
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	store, l := sealedLog(t)
	require.True(t, l.Ended())
	_, err = operation.Open(t.Context(), store, operation.Job{Kind: operation.KindRestore, Name: "b", UID: "u1"})
	require.ErrorIs(t, err, objectstore.ErrNotFound, "a restore of that name has its own")
}

func TestEventsSurviveTheirProcess(t *testing.T) {
	store, l := sealedLog(t, "1", "2", "3")
	started := now.Add(time.Second)
	require.NoError(t, l.Append(t.Context(),
		operation.Event{Operation: 0, Time: now, End: &operation.End{Progress: operation.Progress{Completed: 5, Total: 5, Units: "Bytes", Started: &started}}},
		operation.Event{Operation: 1, Time: now, Cancel: &operation.Cancel{Reason: "timed out"}},
	))
	require.NoError(t, l.Append(t.Context(), operation.Event{Operation: 1, Time: now, Answer: &operation.Answer{Accepted: true}}))
	require.NoError(t, l.Append(t.Context(), operation.Event{Operation: 1, Time: now, End: &operation.End{Error: "gone"}}))
	require.NoError(t, l.Append(t.Context(), operation.Event{Operation: 1, Time: now, End: &operation.End{}}), "after its end nothing happens to it")

	again := openLog(t, store)
	require.Equal(t, l.States(), again.States())
	s := again.States()
	require.Equal(t, operation.Completed, s[0].Phase)
	require.Equal(t, int64(5), s[0].Completed)
	require.True(t, s[0].Started.Equal(started))
	require.Equal(t, operation.Failed, s[1].Phase)
	require.Equal(t, "gone", s[1].Error)
	require.Equal(t, "timed out", s[1].Cancel.Reason)
	require.True(t, s[1].Answer.Accepted)
	require.Equal(t, operation.New, s[2].Phase)
	require.False(t, again.Ended())
	completed, failed := again.Count()
	require.Equal(t, []int{1, 1}, []int{completed, failed})
}

// Of two processes that write the next record one does, and the other has read it afterwards.
func TestOfTwoWritersOneReads(t *testing.T) {
	store, one := sealedLog(t, "1", "2")
	two := openLog(t, store)
	require.NoError(t, one.Append(t.Context(), operation.Event{Operation: 0, Time: now, End: &operation.End{Error: "first"}}))
	event := operation.Event{Operation: 1, Time: now, End: &operation.End{}}
	require.ErrorIs(t, two.Append(t.Context(), event), operation.ErrConflict)
	require.Equal(t, "first", two.States()[0].Error)
	require.Equal(t, operation.New, two.States()[1].Phase, "what was not written did not happen")
	require.NoError(t, two.Append(t.Context(), event))
	require.NoError(t, one.Refresh(t.Context()))
	require.True(t, one.Ended())
}

// A new intent to cancel has no answer yet.
func TestAnAnswerIsThatOfItsIntent(t *testing.T) {
	_, l := sealedLog(t, "1")
	cancel := func() operation.Event {
		return operation.Event{Time: now, Cancel: &operation.Cancel{Reason: "r"}}
	}
	require.NoError(t, l.Append(t.Context(), cancel()))
	require.NoError(t, l.Append(t.Context(), operation.Event{Time: now, Answer: &operation.Answer{}}))
	require.NotNil(t, l.States()[0].Answer)
	require.NoError(t, l.Append(t.Context(), cancel()))
	require.Nil(t, l.States()[0].Answer)
}

func TestDamagedRecords(t *testing.T) {
	const dir = "backups/b/parts/u1/operations/"
	for name, c := range map[string]struct{ key, text string }{
		"a list of another format":   {dir + "list", `{"formatVersion":2,"job":{"kind":"Backup","name":"b","uid":"u1"}}`},
		"a list of another job":      {dir + "list", `{"formatVersion":1,"job":{"kind":"Backup","name":"b","uid":"u2"}}`},
		"a list that is none":        {dir + "list", `[`},
		"a list of too many values":  {dir + "list", `{"operations":[` + strings.Repeat("{},", 2<<20) + `{}]}`},
		"a record of another job":    {dir + "record-0000000001", `{"formatVersion":1,"uid":"u2","seq":1}`},
		"a record of another number": {dir + "record-0000000001", `{"formatVersion":1,"uid":"u1","seq":2}`},
		"a record of another format": {dir + "record-0000000001", `{"formatVersion":9,"uid":"u1","seq":1}`},
		"a record that is missing":   {dir + "record-0000000002", `{"formatVersion":1,"uid":"u1","seq":2}`},
		"a record that is none":      {dir + "record-x", `{}`},
		"an event of nothing":        {dir + "record-0000000001", `{"formatVersion":1,"uid":"u1","seq":1,"events":[{"operation":0}]}`},
		"an event of no operation":   {dir + "record-0000000001", `{"formatVersion":1,"uid":"u1","seq":1,"events":[{"operation":1,"end":{}}]}`},
		"an event of a negative one": {dir + "record-0000000001", `{"formatVersion":1,"uid":"u1","seq":1,"events":[{"operation":-1,"end":{}}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := sealedLog(t, "1")
			store.Set(c.key, []byte(c.text))
			_, err := operation.Open(t.Context(), store, job)
			require.ErrorIs(t, err, operation.ErrDamaged)
		})
	}
}

// A record that is too large for a reader is as damaged as one that is no JSON, for every replica.
func TestARecordThatIsTooLargeIsDamaged(t *testing.T) {
	const dir = "backups/b/parts/u1/operations/"
	for _, name := range []string{"list", "record-0000000001"} {
		store, l := sealedLog(t, "1")
		store.Set(dir+name, bytes.Repeat([]byte(" "), 64<<20+1))
		_, err := operation.Open(t.Context(), store, job)
		require.ErrorIs(t, err, operation.ErrDamaged)
		if name != "list" {
			require.ErrorIs(t, l.Refresh(t.Context()), operation.ErrDamaged)
		}
	}
}

func TestARecordThatNoReaderTakesIsNotWritten(t *testing.T) {
	store, l := sealedLog(t, "1")
	event := operation.Event{Time: now, End: &operation.End{Error: strings.Repeat("x", 64<<20)}}
	require.ErrorIs(t, l.Append(t.Context(), event), journal.ErrDocumentTooLarge)
	require.Equal(t, operation.New, l.States()[0].Phase)
	require.False(t, openLog(t, store).Ended())
}

func TestEventsFitIntoARecordByTheirBytes(t *testing.T) {
	events := make([]operation.Event, 10_000)
	for i := range events {
		events[i] = operation.Event{Time: now, End: &operation.End{Error: strings.Repeat("\x00", 1<<10)}}
	}
	n := operation.CountFitting(events)
	require.Greater(t, n, 125)
	require.Less(t, n, 250)
	require.Equal(t, 100, operation.CountFitting(events[:100]))
	require.Equal(t, 1, operation.CountFitting([]operation.Event{{End: &operation.End{Error: strings.Repeat("x", 8<<20)}}, {}}))
}

func TestKeysTellCallsApart(t *testing.T) {
	item := operation.Resource{Resource: "pods", Namespace: "a", Name: "b"}
	key := operation.Key("u", "x/y", &item)
	require.Equal(t, key, operation.Key("u", "x/y", &operation.Resource{Resource: "pods", Namespace: "a", Name: "b"}))
	require.NotEqual(t, key, operation.Key("v", "x/y", &item))
	require.NotEqual(t, key, operation.Key("u", "x/z", &item))
	require.NotEqual(t, key, operation.Key("u", "x/y", &operation.Resource{Group: "pods", Namespace: "a", Name: "b"}))
	require.NotEqual(t, operation.Key("u", "x", &operation.Resource{Namespace: "ab"}), operation.Key("u", "x", &operation.Resource{Namespace: "a", Name: "b"}))
}
