package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func openLog(t *testing.T, store objectstore.Store, epoch int64) *Log {
	t.Helper()
	log, err := Open(t.Context(), store, "b", "u", epoch)
	require.NoError(t, err)
	return log
}

func TestTheNextHolderReadsEveryRecordInOrder(t *testing.T) {
	store := memstore.New()
	var want []string
	for epoch := int64(1); epoch <= 3; epoch++ {
		log := openLog(t, store, epoch)
		require.Equal(t, want, log.Earlier())
		for i := range 2*readAhead + 3 {
			key, err := log.Append(t.Context(), Record{Part: Part{Items: i}})
			require.NoError(t, err)
			want = append(want, key)
		}
	}
	var got []string
	err := Each(t.Context(), store, "b", "u", want, func(key string, rec *Record) error {
		n := int64(len(got))
		per := int64(2*readAhead + 3)
		require.Equal(t, &Record{FormatVersion: recordVersion, Backup: "b", UID: "u", Epoch: n/per + 1, Seq: n%per + 1, Part: Part{Items: int(n % per)}}, rec)
		got = append(got, key)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A record has no newer format than it needs, so that a runner without actions can go on with a
// backup that has none.
func TestRecordsNameTheFormatTheyNeed(t *testing.T) {
	store := memstore.New()
	log := openLog(t, store, 1)
	call := Call{Action: "a.io/x", Object: Object{Kind: "Pod", Namespace: "a", Name: "p"}}
	for _, c := range []struct {
		rec    Record
		covers bool
	}{
		{Record{Part: Part{SidecarKey: "s"}}, true},
		{Record{Start: &Start{}}, true},
		{Record{Ranges: []Range{{}}, Spool: &Spool{Key: "h"}}, true},
		{Record{Intents: []Call{call}}, false},
		{Record{Hooked: []HookedPod{{Object: call.Object}}}, false},
		{Record{HooksEnded: []HooksEnded{{Pod: call.Object}}}, true},
		{Record{Intents: []Call{call}, Outcomes: []Outcome{{Call: call, Answer: effect.Answer{Body: []byte("{\"<\":1}")}}}}, false},
	} {
		key, err := log.Append(t.Context(), c.rec)
		require.NoError(t, err)
		require.NoError(t, Each(t.Context(), store, "b", "u", []string{key}, func(_ string, rec *Record) error {
			require.Equal(t, c.covers, rec.Covers())
			require.Equal(t, c.rec.Intents, rec.Intents)
			require.Equal(t, c.rec.Outcomes, rec.Outcomes)
			return nil
		}))
	}
}

func TestOtherFormatsAreRefused(t *testing.T) {
	for _, format := range []int{0, 1, 3} {
		store := memstore.New()
		text := fmt.Sprintf(`{"formatVersion":%d,"backup":"b","uid":"u"}`, format)
		require.NoError(t, objectstore.CreateBytes(t.Context(), store, "k", []byte(text)))
		err := Each(t.Context(), store, "b", "u", []string{"k"}, func(string, *Record) error { return nil })
		require.ErrorContains(t, err, fmt.Sprintf("formatVersion: %d is not supported", format))
		require.ErrorIs(t, err, journal.ErrCorrupt)
	}
}

func TestEachEndsWithTheFirstError(t *testing.T) {
	store := memstore.New()
	log := openLog(t, store, 1)
	var keys []string
	for range readAhead + 1 {
		key, err := log.Append(t.Context(), Record{})
		require.NoError(t, err)
		keys = append(keys, key)
	}
	enough, seen := errors.New("enough"), 0
	require.ErrorIs(t, Each(t.Context(), store, "b", "u", keys, func(string, *Record) error { seen++; return enough }), enough)
	require.Equal(t, 1, seen)
	require.NoError(t, store.Delete(t.Context(), keys[3]))
	require.ErrorIs(t, Each(t.Context(), store, "b", "u", keys, func(string, *Record) error { return nil }), objectstore.ErrNotFound)
}

func TestAClosedEpochTakesNoRecord(t *testing.T) {
	store := memstore.New()
	old := openLog(t, store, 1)
	_, err := old.Append(t.Context(), Record{})
	require.NoError(t, err)
	next := openLog(t, store, 2)
	_, err = old.Append(t.Context(), Record{})
	require.ErrorIs(t, err, journal.ErrFenced)
	_, err = next.Append(t.Context(), Record{})
	require.NoError(t, err)
	err = Each(t.Context(), store, "b", "u", []string{layout.Checkpoint("b", "u", 1, 2)}, func(string, *Record) error { return nil })
	require.ErrorIs(t, err, ErrClosing)
	require.NotErrorIs(t, err, journal.ErrCorrupt)
}

func TestCompositionIsFixedOnce(t *testing.T) {
	store := memstore.New()
	_, err := ReadComposition(t.Context(), store, "b", "u")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	first, err := RecordComposition(t.Context(), store, Composition{Backup: "b", UID: "u", Phase: velerov1.BackupPhaseCompleted, Checkpoints: []string{"x"}})
	require.NoError(t, err)
	second, err := RecordComposition(t.Context(), store, Composition{Backup: "b", UID: "u", Phase: velerov1.BackupPhasePartiallyFailed})
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// One record decides: a backup that was failed is not composed any more, and the first failure
// stands.
func TestTheFirstFailureStands(t *testing.T) {
	store := memstore.New()
	first := Failure{Reason: "no disk", Time: time.Unix(1, 5e6).UTC()}
	_, err := RecordComposition(t.Context(), store, Composition{Backup: "b", UID: "u", Phase: velerov1.BackupPhaseFailed, Failure: &first})
	require.NoError(t, err)
	c, err := RecordComposition(t.Context(), store, Composition{Backup: "b", UID: "u", Phase: velerov1.BackupPhaseCompleted})
	require.NoError(t, err)
	require.Equal(t, &first, c.Failure)

	_, err = ReadFailure(t.Context(), store, "b", "u")
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	for _, f := range []Failure{first, {Reason: "later"}} {
		got, err := RecordFailure(t.Context(), store, "b", "u", f)
		require.NoError(t, err)
		require.Equal(t, first, got)
	}
}

func TestDamagedRecords(t *testing.T) {
	store := memstore.New()
	key := layout.Checkpoint("b", "u", 1, 1)
	for content, want := range map[string]string{
		"{": "unexpected end", `{"formatVersion":9}`: "formatVersion",
		fmt.Sprintf(`{"formatVersion":%d,"backup":"b","uid":"v"}`, recordVersion): "belongs to",
	} {
		store.Set(key, []byte(content))
		err := Each(t.Context(), store, "b", "u", []string{key}, func(string, *Record) error { return nil })
		require.ErrorContains(t, err, want)
	}
	for content, want := range map[string]string{
		"{": "unexpected", `{"formatVersion":9}`: "formatVersion", `{"formatVersion":1,"backup":"other","uid":"u"}`: "other",
	} {
		store.Set(layout.Composition("b", "u"), []byte(content))
		_, err := ReadComposition(t.Context(), store, "b", "u")
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, ErrDamaged)
		store.Set(layout.Failure("b", "u"), []byte(content))
		_, err = RecordFailure(t.Context(), store, "b", "u", Failure{Reason: "later"})
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, ErrDamaged)
	}
}

// A record of 8 MiB in the bucket, a sixth of what may be read, becomes a gigabyte of structs in
// the runner that takes the backup over.
func TestAForgedRecordCostsBoundedMemory(t *testing.T) {
	for _, field := range []string{"leftOut", "intents", "intendedSnapshots", "ranges"} {
		store := memstore.New()
		key, err := openLog(t, store, 1).Append(t.Context(), Record{})
		require.NoError(t, err)
		text := limittest.Text(t, limittest.List(`{"formatVersion":2,"backup":"b","uid":"u","`+field+`":[`, "{}", "]}", 8<<20))
		require.NoError(t, objectstore.PutBytes(t.Context(), store, key, text))
		require.Less(t, limittest.Allocated(func() {
			err = Each(t.Context(), store, "b", "u", []string{key}, func(string, *Record) error { return nil })
		}), uint64(96<<20), field)
		require.ErrorIs(t, err, journal.ErrCorrupt, field)
	}
}

// A composition of 60 MiB became several times that in the runner that takes the backup over, beside
// its text.
func TestAForgedCompositionCostsBoundedMemory(t *testing.T) {
	head := `{"formatVersion":2,"backup":"b","uid":"u","`
	for field, element := range map[string]string{
		"operations": `{"item":{}}`, "Operations": `{"postOperationItems":[{},{}]}`, "checkpoints": `""`, "namespaces": `"x"`, "unknown": "{}",
	} {
		store := memstore.New()
		store.Set(layout.Composition("b", "u"), limittest.Text(t, limittest.List(head+field+`":[`, element, "]}", 60<<20)))
		var err error
		require.Less(t, limittest.Allocated(func() { _, err = ReadComposition(t.Context(), store, "b", "u") }), uint64(96<<20), field)
		require.ErrorIs(t, err, ErrDamaged, field)
	}
}

// What no reader takes is not written: the place would be taken for good.
func TestACompositionThatIsTooLargeIsNotWritten(t *testing.T) {
	store := memstore.New()
	for name, change := range map[string]func(*Composition){
		"an operation": func(c *Composition) { c.Operations = []operation.Operation{{ID: strings.Repeat("x", 1<<20)}} },
		"keys":         func(c *Composition) { c.Checkpoints = []string{strings.Repeat("x", 9<<20)} },
	} {
		c := Composition{Backup: "b", UID: "u", Phase: velerov1.BackupPhaseCompleted}
		change(&c)
		_, err := RecordComposition(t.Context(), store, c)
		require.ErrorIs(t, err, ErrTooLarge, name)
		require.Empty(t, store.Keys(), name)
	}
}

// A bucket that fails while a composition is read has not damaged it.
func TestACompositionThatIsNotReadIsNotDamaged(t *testing.T) {
	store := memstore.New()
	c, err := RecordComposition(t.Context(), store, Composition{
		Backup: "b", UID: "u", Phase: velerov1.BackupPhaseCompleted, Checkpoints: []string{"x", "y"}, Namespaces: []string{"n"},
		Operations: []operation.Operation{{ID: "1", Action: "a", Key: "k"}, {ID: "2", Action: "a"}},
	})
	require.NoError(t, err)
	again, err := ReadComposition(t.Context(), store, "b", "u")
	require.NoError(t, err)
	require.Equal(t, c, again)
	_, err = ReadComposition(t.Context(), cutOff{store}, "b", "u")
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.NotErrorIs(t, err, ErrDamaged)
}

// cutOff is a bucket whose answers break off.
type cutOff struct{ objectstore.Store }

func (c cutOff) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	body, err := c.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(body, 30), iotest.ErrReader(io.ErrClosedPipe)), body}, nil
}
