package storedplan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// newWriter returns a sorted writer with a row for each name.
func newWriter(t *testing.T, action string, names ...string) *storedplan.Writer {
	t.Helper()
	w := storedplan.NewWriter(t.TempDir())
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	for _, name := range names {
		require.NoError(t, w.Add(storedplan.Row{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name, Action: action}))
	}
	require.NoError(t, w.Sort())
	return w
}

func newHeader(id string) *storedplan.Header {
	return &storedplan.Header{ID: id, Kind: storedplan.KindRestore, Created: now, Expires: now.Add(time.Hour), Spec: json.RawMessage(`{"backupName":"b"}`)}
}

func collect(t *testing.T, rows iter.Seq2[*storedplan.Row, error]) (names []string) {
	t.Helper()
	for r, err := range rows {
		require.NoError(t, err)
		names = append(names, r.Name)
	}
	return names
}

func TestAPlanIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	w := newWriter(t, "create", "web", "api", "db")
	h := newHeader("p1")
	require.NoError(t, w.Store(t.Context(), store, h))
	require.ErrorIs(t, w.Store(t.Context(), store, newHeader("p1")), objectstore.ErrExists)

	got, err := storedplan.ReadHeader(t.Context(), store, "p1")
	require.NoError(t, err)
	require.Equal(t, h, got)
	require.Equal(t, map[string]int64{"create": 3}, got.Counts)
	require.Equal(t, []string{"api", "db", "web"}, collect(t, storedplan.Rows(t.Context(), store, "p1")))
	require.Equal(t, []string{"api", "db", "web"}, collect(t, w.Rows()))

	for _, id := range []string{"p2", "../p1", ""} {
		_, err = storedplan.ReadHeader(t.Context(), store, id)
		require.ErrorIs(t, err, storedplan.ErrNotFound)
	}
}

func TestThePartsOfARowAreJoined(t *testing.T) {
	t.Parallel()
	w := storedplan.NewWriter(t.TempDir())
	defer func() { require.NoError(t, w.Close()) }()
	row := storedplan.Row{Kind: "Pod", Name: "b"}
	for _, part := range []storedplan.Row{
		{Reasons: []string{"before"}, TargetNamespace: "x"}, {Action: "update", Order: 7, Fields: []string{"spec.a"}}, {Reasons: []string{"behind"}, Unknown: []string{"u"}},
	} {
		part.Kind, part.Name = row.Kind, row.Name
		require.NoError(t, w.Add(part))
	}
	require.NoError(t, w.Add(storedplan.Row{Kind: "Pod", Name: "a", Reasons: []string{"has no action"}}))
	require.NoError(t, w.Add(storedplan.Row{Kind: "Pod", Name: "c", Action: "create"}))
	require.NoError(t, w.Add(storedplan.Row{Kind: "Pod", Name: "d", Reasons: []string{"has none either"}}))
	require.NoError(t, w.Sort())
	require.Equal(t, map[string]int64{"update": 1, "create": 1}, w.Counts())
	row.Action, row.Order, row.TargetNamespace, row.Reasons, row.Fields, row.Unknown = "update", 7, "x", []string{"before", "behind"}, []string{"spec.a"}, []string{"u"}
	var got []storedplan.Row
	for r, err := range w.Rows() {
		require.NoError(t, err)
		got = append(got, *r)
	}
	require.Equal(t, []storedplan.Row{row, {Kind: "Pod", Name: "c", Action: "create"}}, got)
}

func TestLongTextsOfARowAreCut(t *testing.T) {
	t.Parallel()
	w := storedplan.NewWriter(t.TempDir())
	defer func() { require.NoError(t, w.Close()) }()
	require.NoError(t, w.Add(storedplan.Row{Kind: "Pod", Name: "a", Action: "create", Reasons: []string{strings.Repeat("é", 5000)}, Fields: slices.Repeat([]string{"f"}, 100)}))
	require.NoError(t, w.Sort())
	for r, err := range w.Rows() {
		require.NoError(t, err)
		require.LessOrEqual(t, len(r.Reasons[0]), 1024)
		require.Len(t, r.Fields, 64)
		require.Equal(t, "and more", r.Fields[63])
	}
}

func TestCompareMergesTwoPlans(t *testing.T) {
	t.Parallel()
	a, b := newWriter(t, "create", "a", "b", "d"), newWriter(t, "update", "b", "c", "d", "e")
	found, err := storedplan.Compare(a.Rows(), b.Rows())
	require.NoError(t, err)
	require.Equal(t, &storedplan.Differences{Added: 2, Gone: 1, Changed: 2, First: []string{
		"Deployment shop/a: planned: create, now: nothing", "Deployment shop/b: planned: create, now: update", "Deployment shop/c: not in the plan, now: update",
		"Deployment shop/d: planned: create, now: update", "Deployment shop/e: not in the plan, now: update",
	}}, found)
	found, err = storedplan.Compare(a.Rows(), a.Rows())
	require.NoError(t, err)
	require.Zero(t, found.Total())

	stop := errors.New("stop")
	broken := func(yield func(*storedplan.Row, error) bool) { yield(nil, stop) }
	_, err = storedplan.Compare(a.Rows(), broken)
	require.ErrorIs(t, err, stop)
	_, err = storedplan.Compare(broken, a.Rows())
	require.ErrorIs(t, err, stop)
}

// Unknown effects promise nothing, but the fields of an update count.
func TestCompareLeavesOutUnknownEffects(t *testing.T) {
	t.Parallel()
	rows := func(unknown bool, fields ...string) iter.Seq2[*storedplan.Row, error] {
		return func(yield func(*storedplan.Row, error) bool) {
			r := &storedplan.Row{Kind: "Pod", Name: "p", Action: "update", Fields: fields}
			if unknown {
				r.Unknown = []string{"an action"}
			}
			yield(r, nil)
		}
	}
	found, err := storedplan.Compare(rows(false, "spec.a"), rows(false, "spec.b"))
	require.NoError(t, err)
	require.Equal(t, []string{"Pod /p: update of other fields: planned: [spec.a], now: [spec.b]"}, found.First)
	for _, planned := range []bool{false, true} {
		found, err = storedplan.Compare(rows(planned, "spec.a"), rows(!planned, "spec.b"))
		require.NoError(t, err)
		require.Zero(t, found.Total())
	}
	for total, r := range []iter.Seq2[*storedplan.Row, error]{rows(true), rows(false)} {
		found, err = storedplan.Compare(newWriter(t, "create").Rows(), r)
		require.NoError(t, err)
		require.Equal(t, total, found.Total(), "what a plan cannot know need not be in it")
		found, err = storedplan.Compare(r, newWriter(t, "create").Rows())
		require.NoError(t, err)
		require.Equal(t, 1, found.Total(), "what it has must be there still")
	}
}

// A bucket that does not answer is no damage: who reads the plan tries again.
func TestAPlanThatCannotBeReadIsNotDamaged(t *testing.T) {
	store := memstore.New()
	require.NoError(t, newWriter(t, "create", "a").Store(t.Context(), store, newHeader("p")))
	reset := errors.New("connection reset")
	for passed := range 2 {
		reads := 0
		store.Inject(func(op memstore.Op, _ string) error {
			if op == memstore.OpRead {
				if reads++; reads > passed {
					return reset
				}
			}
			return nil
		})
		_, err := lastError(store)
		require.ErrorIs(t, err, reset, passed)
		require.NotErrorIs(t, err, storedplan.ErrCorrupt, passed)
	}
}

func TestExpiredAndUnfinishedPlansAreDeleted(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	clock := clocktesting.NewFakePassiveClock(now)
	store.Clock = clock
	put := func(key, text string) {
		require.NoError(t, store.Put(t.Context(), key, strings.NewReader(text), int64(len(text))))
	}
	for id, age := range map[string]time.Duration{"old": 2 * time.Hour, "young": 0} {
		h := newHeader(id)
		h.Expires = h.Expires.Add(-age)
		require.NoError(t, newWriter(t, "create", "a").Store(t.Context(), store, h))
	}
	put(layout.PlanHeader("damaged"), "{")
	put(layout.PlanRows("being-made"), "x")
	ids := func() (ids []string) {
		require.NoError(t, storedplan.List(t.Context(), store, func(id string, _ *storedplan.Header, _ error) error {
			ids = append(ids, id)
			return nil
		}))
		return ids
	}
	_, err := storedplan.DeleteExpired(t.Context(), store, now)
	require.NoError(t, err)
	require.Equal(t, []string{"being-made", "young"}, ids())
	_, err = storedplan.DeleteExpired(t.Context(), store, now.Add(25*time.Hour))
	require.NoError(t, err)
	require.Empty(t, ids())
}

func putRows(t testing.TB, store objectstore.Writer, packed []byte) {
	t.Helper()
	require.NoError(t, store.Put(t.Context(), layout.PlanRows("p"), bytes.NewReader(packed), int64(len(packed))))
}

// lastError reads a plan to its end.
func lastError(store objectstore.Reader) (n int, err error) {
	for _, err = range storedplan.Rows(context.Background(), store, "p") {
		n++
	}
	return n, err
}

func TestAForgedPlanCostsBoundedMemory(t *testing.T) {
	store := memstore.New()
	for name, element := range map[string]string{"texts": `""`, "long": `"` + strings.Repeat("x", 1000) + `"`} {
		putRows(t, store, limittest.Packed(t, limittest.List(`{"kind":"Pod","name":"a","reasons":[`, element, "]}\n", 64<<20)))
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = lastError(store) }), uint64(32<<20), name)
		require.ErrorIs(t, err, storedplan.ErrCorrupt, name)
	}
	putRows(t, store, limittest.Packed(t, strings.NewReader(`{"kind":"Pod","name":"b"}`+"\n"+`{"kind":"Pod","name":"a"}`)))
	_, err := lastError(store)
	require.ErrorIs(t, err, storedplan.ErrCorrupt, "rows that do not ascend")
}

func FuzzRows(f *testing.F) {
	f.Add(limittest.Packed(f, strings.NewReader(`{"kind":"Pod","name":"a"}`+"\n"+`{"kind":"Pod","name":"b","order":3}`)))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, packed []byte) {
		store := memstore.New()
		putRows(t, store, packed)
		var n int
		var err error
		require.Less(t, limittest.Allocated(func() { n, err = lastError(store) }), uint64(32<<20+2000*len(packed)))
		if err != nil {
			require.ErrorIs(t, err, storedplan.ErrCorrupt, fmt.Sprint(n))
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte(`{"formatVersion":"1","id":"p","kind":"Restore","spec":{"backupName":"b"},"counts":{"create":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		store := memstore.New()
		require.NoError(t, store.Put(t.Context(), layout.PlanHeader("p"), bytes.NewReader(text), int64(len(text))))
		var h *storedplan.Header
		var err error
		require.Less(t, limittest.Allocated(func() { h, err = storedplan.ReadHeader(t.Context(), store, "p") }), uint64(64<<20))
		if err != nil {
			require.ErrorIs(t, err, storedplan.ErrCorrupt)
		} else {
			require.Equal(t, "p", h.ID)
		}
	})
}
