package itemaction

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

var errBoom = errors.New("plugin a.io/x: Execute of Pod a/p: boom")

// TestTheNextAttemptDoesOnlyWhatIsLeft: actions run per item in the order of their names. A failure costs
// its item the later actions, which may count on the one that failed, and no other item anything.
func TestTheNextAttemptDoesOnlyWhatIsLeft(t *testing.T) {
	inBothWays(t, podItems("o", "p", "q"), func(b *bed) {
		x := b.registerAction("a.io/x", everything, failForObject("Pod a/p", errBoom))
		b.registerAction("b.io/a", everything, nil)
		b.registerAction("a.io/b", everything, nil)
		require.Equal(b.t, []string{errBoom.Error()}, errorMessages(b.t, b.runAttempt(b.t.Context())))
		require.Equal(b.t, []string{
			"a.io/b Pod a/o", "a.io/x Pod a/o", "b.io/a Pod a/o",
			"a.io/b Pod a/p", "a.io/x Pod a/p",
			"a.io/b Pod a/q", "a.io/x Pod a/q", "b.io/a Pod a/q",
		}, b.takeNotes())
		require.Len(b.t, b.donePairs(), 1)

		require.ErrorIs(b.t, b.runNextAttempt(), errBoom)
		require.Equal(b.t, []string{"a.io/x Pod a/p"}, b.takeNotes())

		x.do = nil
		require.NoError(b.t, b.runNextAttempt())
		require.Equal(b.t, []string{"a.io/x Pod a/p", "b.io/a Pod a/p"}, b.takeNotes())
		require.NoError(b.t, b.runNextAttempt())
		require.Empty(b.t, b.takeNotes(), "all is done")
	})
}

// A plugin that was installed after a failed attempt is called for all items, those of the earlier
// attempt included.
func TestANewActionSeesEverything(t *testing.T) {
	inBothWays(t, podItems("o", "p"), func(b *bed) {
		b.registerAction("a.io/b", everything, failForObject("Pod a/p", errBoom))
		require.Error(b.t, b.runAttempt(b.t.Context()))
		b.registerAction("a.io/a", everything, nil)
		b.takeNotes()
		require.Error(b.t, b.runNextAttempt())
		require.Equal(b.t, []string{"a.io/a Pod a/o", "a.io/a Pod a/p", "a.io/b Pod a/p"}, b.takeNotes())
	})
}

func TestManyErrorsAreSummedUp(t *testing.T) {
	inBothWays(t, backuptest.Objects("pods", "Pod", "a", 50), func(b *bed) {
		b.registerAction("a.io/b", everything, func(_ context.Context, object string) error { return fmt.Errorf("no %s", object) })
		texts := errorMessages(b.t, b.runAttempt(b.t.Context()))
		require.Len(b.t, texts, shown+1)
		require.Equal(b.t, "no Pod a/o-000000", texts[0])
		require.Equal(b.t, "and 30 more errors", texts[shown])
		require.Len(b.t, b.takeNotes(), 50)
		require.Empty(b.t, b.donePairs())
	})
}

// TestAnInterruptedAttemptIsRecorded: the process is stopped while an action works; what is done is
// not repeated.
func TestAnInterruptedAttemptIsRecorded(t *testing.T) {
	inBothWays(t, podItems("o", "p", "q"), func(b *bed) {
		ctx, stop := context.WithCancel(b.t.Context())
		b.registerAction("a.io/b", everything, nil)
		x := b.registerAction("a.io/x", everything, func(ctx context.Context, object string) error {
			if object == "Pod a/p" {
				stop()
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		b.confirm = func() error { return nil } // the claim is still held
		require.ErrorIs(b.t, b.runAttempt(ctx), context.Canceled)
		b.takeNotes()
		x.do = nil
		require.NoError(b.t, b.runNextAttempt())
		require.Equal(b.t, []string{"a.io/x Pod a/p", "a.io/b Pod a/q", "a.io/x Pod a/q"}, b.takeNotes())
	})
}

// TestWhatWasDoneIsRecordedWhileAnActionTakesLong: a process dies while an action hangs, and its
// successor does not repeat what was done a second before.
func TestWhatWasDoneIsRecordedWhileAnActionTakesLong(t *testing.T) {
	inBothWays(t, podItems("o", "p", "q"), func(b *bed) {
		ctx, die := context.WithCancel(b.t.Context())
		slow := make(chan struct{})
		b.registerAction("a.io/b", everything, nil)
		x := b.registerAction("a.io/x", everything, func(ctx context.Context, object string) error {
			if object != "Pod a/p" {
				return nil
			}
			close(slow)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		done := make(chan error, 1)
		go func() { done <- b.runAttempt(ctx) }()
		<-slow
		require.Empty(b.t, b.donePairs())
		b.clock.Step(flushEvery)
		require.Eventually(b.t, func() bool { return len(b.store.Keys()) > 0 && len(linesContaining(b.store.Keys(), "/deletion/")) == 1 }, timeout, time.Millisecond)
		b.store.Inject(func(memstore.Op, string) error { return errors.New("the process is dead") })
		die()
		require.Error(b.t, <-done)
		b.store.Inject(nil)
		b.takeNotes()
		x.do = nil
		require.NoError(b.t, b.runNextAttempt())
		require.Equal(b.t, []string{"a.io/x Pod a/p", "a.io/b Pod a/q", "a.io/x Pod a/q"}, b.takeNotes())
	})
}

var errLost = errors.New("claim lost")

// A process whose work is another's calls nothing and records nothing.
func TestALostClaimEndsTheAttempt(t *testing.T) {
	inBothWays(t, podItems("o", "p", "q"), func(b *bed) {
		b.registerAction("a.io/b", everything, func(_ context.Context, object string) error {
			b.confirm = func() error { return errLost }
			return nil
		})
		require.ErrorIs(b.t, b.runAttempt(b.t.Context()), errLost)
		require.Equal(b.t, []string{"a.io/b Pod a/o"}, b.takeNotes())
		require.Empty(b.t, b.donePairs())
	})
}

// TestAnActionThatDoesNotAnswerIsGivenUp: every call takes as long as one may take, and there may
// be a million items.
func TestAnActionThatDoesNotAnswerIsGivenUp(t *testing.T) {
	names := []string{"k", "l", "m", "n", "o", "p"}
	for why, calls := range map[error]int{pluginhost.ErrTimeout: maxUnanswered, pluginhost.ErrStopped: 1} {
		inBothWays(t, podItems(names...), func(b *bed) {
			b.registerAction("a.io/b", everything, nil)
			x := b.registerAction("a.io/x", everything, func(context.Context, string) error {
				return &pluginhost.Error{Plugin: "a.io/x", Method: "Execute", Err: why}
			})
			b.registerAction("b.io/a", everything, nil)
			texts := errorMessages(b.t, b.runAttempt(b.t.Context()))
			require.Len(b.t, texts, calls+1)
			require.Equal(b.t, fmt.Sprintf("plugin a.io/x: does not answer: %d more items were not shown to it", len(names)-calls), texts[calls])
			said := b.takeNotes()
			require.Len(b.t, linesContaining(said, "a.io/x"), calls)
			require.Len(b.t, linesContaining(said, "a.io/b"), len(names), "whoever comes before is not delayed")
			require.Empty(b.t, linesContaining(said, "b.io/a"), "whoever comes behind waits")
			x.do = nil
			require.NoError(b.t, b.runNextAttempt())
			require.Len(b.t, b.takeNotes(), 2*len(names))
		})
	}
}

// One item that makes a plugin hang is not the plugin's end.
func TestAnAnswerInBetweenCounts(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", backuptest.Objects("pods", "Pod", "a", 20)...)
	calls := 0
	b.registerAction("a.io/b", everything, func(context.Context, string) error {
		if calls++; calls%maxUnanswered != 0 {
			return pluginhost.ErrTimeout
		}
		return nil
	})
	require.ErrorIs(t, b.runAttempt(t.Context()), pluginhost.ErrTimeout)
	require.Equal(t, 20, calls)
}

func TestADamagedRecordIsDoneAgain(t *testing.T) {
	for name, data := range map[string]string{"garbage": "{", "another version": `{"version":7}`, "nothing": "", "another shape": `{"version":1,"done":{"a.io/b":"x"}}`} {
		b := newBed(t)
		backuptest.Write(t, b.store, "b", podItems("o", "p")...)
		b.registerAction("a.io/b", everything, failForObject("Pod a/p", errBoom))
		require.Error(t, b.runAttempt(t.Context()))
		b.takeNotes()
		records := b.donePairs()
		require.Len(t, records, 1)
		b.store.Set(records[0], []byte(data))
		require.Error(t, b.runNextAttempt())
		require.Equal(t, []string{"a.io/b Pod a/o", "a.io/b Pod a/p"}, b.takeNotes(), name)
	}
}

func TestARecordThatCannotBeReadEndsTheAttempt(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("o", "p")...)
	b.registerAction("a.io/b", everything, failForObject("Pod a/p", errBoom))
	require.Error(t, b.runAttempt(t.Context()))
	b.takeNotes()
	for _, op := range []memstore.Op{memstore.OpGet, memstore.OpList} {
		b.injectFault(op, "/deletion/", errStore)
		require.ErrorIs(t, b.runNextAttempt(), errStore)
		require.Empty(t, b.takeNotes())
	}
}

func TestARecordThatCannotBeWritten(t *testing.T) {
	b := newBed(t)
	backuptest.Write(t, b.store, "b", podItems("o", "p")...)
	b.injectFault(memstore.OpCreate, "/deletion/", errStore)
	f := b.registerAction("a.io/b", everything, nil)
	require.NoError(t, b.runAttempt(t.Context()), "with everything done it is of no use")
	f.do = failForObject("Pod a/p", errBoom)
	texts := errorMessages(t, b.runNextAttempt())
	require.Len(t, texts, 2)
	require.Equal(t, errBoom.Error(), texts[0])
	require.Contains(t, texts[1], "record what delete item actions have done: ")
}

// The answer to a creation is lost: the next try finds the object and writes what came later beside
// it.
func TestARecordThatWasWrittenAfterAll(t *testing.T) {
	b := newBed(t)
	r := newRecord(Job{Backup: backupNamed("b"), UID: "uid-b", Attempt: "1", Store: lossy{b.store}, Confirm: func(context.Context) error { return nil }}, b.r.Log)
	r.addDone(t.Context(), "a.io/b", "o")
	require.Error(t, r.flushPending(t.Context()))
	r.addDone(t.Context(), "a.io/b", "p")
	r.job.Store = b.store
	require.NoError(t, r.flushPending(t.Context()))
	require.NoError(t, r.loadDone(t.Context()))
	require.True(t, r.hasDone("a.io/b", "o"))
	require.True(t, r.hasDone("a.io/b", "p"))
	require.False(t, r.hasDone("a.io/x", "p"))
	require.Len(t, b.store.Keys(), 2)
}

// lossy makes each write, and returns an error nevertheless.
type lossy struct{ *memstore.Store }

func (l lossy) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return errors.Join(l.Store.Create(ctx, key, r, size), errStore)
}

func TestLongRecordsAreWrittenInParts(t *testing.T) {
	b := newBed(t)
	r := newRecord(Job{Backup: backupNamed("b"), UID: "uid-b", Attempt: "1", Store: b.store, Confirm: func(context.Context) error { return nil }}, b.r.Log)
	for i := range 2*batchPairs + 1 {
		r.addDone(t.Context(), "a.io/b", fmt.Sprint(i))
	}
	require.Len(t, b.store.Keys(), 2, "full ones at once")
	require.NoError(t, r.flushPending(t.Context()))
	require.NoError(t, r.loadDone(t.Context()))
	require.Len(t, r.known, 2*batchPairs+1)
	require.Len(t, b.donePairs(), 3)
}

// A process of another attempt cannot overwrite or take for its own what this one has recorded.
func TestAttemptsRecordBesideEachOther(t *testing.T) {
	b := newBed(t)
	for _, attempt := range []string{"1", "2"} {
		r := newRecord(Job{Backup: backupNamed("b"), UID: "uid-b", Attempt: attempt, Store: b.store, Confirm: func(context.Context) error { return nil }}, b.r.Log)
		r.addDone(t.Context(), "a.io/b", attempt)
		require.NoError(t, r.flushPending(t.Context()))
	}
	require.True(t, slices.IsSorted(b.donePairs()))
	require.Len(t, b.donePairs(), 2)
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"done":{"a.io/b":["resources/pods/namespaces/a/p.json"]}}`))
	f.Add([]byte(`{"version":1,"done":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &doneRecord{known: map[pairID]struct{}{}}
		if err := r.learnPairs(data); err != nil {
			require.ErrorIs(t, err, errRecord)
		}
	})
}

var _ objectstore.Store = lossy{}
