package journal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

const prefix = "backups/b/parts/uid/checkpoint-"

func openJournal(t *testing.T, s objectstore.Store, epoch int64) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.Context(), s, prefix, epoch)
	require.NoError(t, err)
	return j
}

func appendText(t *testing.T, j *journal.Journal, text string) string {
	t.Helper()
	key, err := j.Append(t.Context(), []byte(text))
	require.NoError(t, err)
	return key
}

func TestSuccessorReadsWhatWasWrittenAndFencesTheWriter(t *testing.T) {
	s := memstore.New()
	first := openJournal(t, s, 1)
	want := []string{appendText(t, first, "a"), appendText(t, first, "b")}
	second := openJournal(t, s, 2)
	require.Equal(t, want, second.Earlier())
	_, err := first.Append(t.Context(), []byte("late"))
	require.ErrorIs(t, err, journal.ErrFenced)
	_, err = first.Append(t.Context(), []byte("later"))
	require.ErrorIs(t, err, journal.ErrFenced)
	want = append(want, appendText(t, second, "c"))
	require.Equal(t, want, openJournal(t, s, 3).Earlier())
}

func TestEpochsWithoutRecordsAreClosedToo(t *testing.T) {
	s := memstore.New()
	silent := openJournal(t, s, 3)
	require.Empty(t, openJournal(t, s, 5).Earlier())
	_, err := silent.Append(t.Context(), []byte("late"))
	require.ErrorIs(t, err, journal.ErrFenced)
}

func TestAnEarlierEpochCannotOpenAfterALaterOne(t *testing.T) {
	s := memstore.New()
	appendText(t, openJournal(t, s, 1), "a")
	openJournal(t, s, 3)
	_, err := journal.Open(t.Context(), s, prefix, 2)
	require.ErrorIs(t, err, journal.ErrFenced)
	appendText(t, openJournal(t, s, 4), "d")
	_, err = journal.Open(t.Context(), s, prefix, 4)
	require.ErrorIs(t, err, journal.ErrFenced)
}

func TestALostAnswerIsNoFence(t *testing.T) {
	s := memstore.New()
	j := openJournal(t, s, 1)
	s.Inject(func(_ memstore.Op, key string) error {
		s.Inject(nil)
		s.Set(key, []byte("a"))
		return errors.New("the answer got lost")
	})
	_, err := j.Append(t.Context(), []byte("a"))
	require.ErrorContains(t, err, "lost")
	appendText(t, j, "a")
	require.Len(t, openJournal(t, s, 2).Earlier(), 1)
}

// loseNextAnswer loses the answer to the next call.
func loseNextAnswer(s *memstore.Store, text string) {
	s.Inject(func(_ memstore.Op, key string) error {
		s.Inject(nil)
		s.Set(key, []byte(text))
		return errors.New("the answer got lost")
	})
}

// The epoch was not closed: the record behind one whose answer got lost gets the next number, and
// the lost one is stored once when its caller tries again.
func TestALostAnswerIsNoFenceForAnother(t *testing.T) {
	s := memstore.New()
	j := openJournal(t, s, 1)
	loseNextAnswer(s, "a")
	_, err := j.Append(t.Context(), []byte("a"))
	require.ErrorContains(t, err, "lost")
	require.Equal(t, journal.Key(prefix, 1, 2), appendText(t, j, "b"))
	require.Equal(t, journal.Key(prefix, 1, 1), appendText(t, j, "a"))
	require.Equal(t, journal.Key(prefix, 1, 3), appendText(t, j, "a"), "that is another record")
	require.Len(t, openJournal(t, s, 2).Earlier(), 3)
	_, err = j.Append(t.Context(), []byte("c"))
	require.ErrorIs(t, err, journal.ErrFenced)
}

func TestALostNumberedRecordIsFoundAgain(t *testing.T) {
	s := memstore.New()
	j := openJournal(t, s, 1)
	numbered := func(text string) func(int64) ([]byte, error) {
		return func(seq int64) ([]byte, error) { return fmt.Appendf(nil, "%s %d", text, seq), nil }
	}
	loseNextAnswer(s, "a 1")
	_, err := j.AppendNumbered(t.Context(), numbered("a"))
	require.ErrorContains(t, err, "lost")
	for i, text := range []string{"b", "a"} {
		key, err := j.AppendNumbered(t.Context(), numbered(text))
		require.NoError(t, err)
		require.Equal(t, journal.Key(prefix, 1, int64(2-i)), key)
	}
	data, err := journal.Read(t.Context(), s, journal.Key(prefix, 1, 2))
	require.NoError(t, err)
	require.Equal(t, "b 2", string(data))
	require.Len(t, openJournal(t, s, 2).Earlier(), 2)
}

// What no call of this process has tried to write was written by another.
func TestARecordOfSomebodyElseIsAFence(t *testing.T) {
	s := memstore.New()
	j := openJournal(t, s, 1)
	loseNextAnswer(s, "not a")
	_, err := j.Append(t.Context(), []byte("a"))
	require.ErrorContains(t, err, "lost")
	_, err = j.Append(t.Context(), []byte("b"))
	require.ErrorIs(t, err, journal.ErrFenced)
}

func TestAGapIsCorruption(t *testing.T) {
	s := memstore.New()
	j := openJournal(t, s, 1)
	key := appendText(t, j, "a")
	appendText(t, j, "b")
	require.NoError(t, s.Delete(t.Context(), key))
	_, err := journal.Open(t.Context(), s, prefix, 2)
	require.ErrorIs(t, err, journal.ErrCorrupt)
}

// Any number of successors and writers at once: every record that Append confirmed is seen by every
// later successor, in the same order.
func TestNoConfirmedRecordIsLostInARace(t *testing.T) {
	s := memstore.New()
	var mu sync.Mutex
	confirmed := map[string]bool{}
	var group sync.WaitGroup
	for epoch := range int64(8) {
		group.Go(func() {
			j, err := journal.Open(context.WithoutCancel(t.Context()), s, prefix, epoch+1)
			for i := 0; err == nil && i < 20; i++ {
				var key string
				if key, err = j.Append(context.WithoutCancel(t.Context()), fmt.Appendf(nil, "%d-%d", epoch+1, i)); err == nil {
					mu.Lock()
					confirmed[key] = true
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, key := range openJournal(t, s, 100).Earlier() {
		seen[key] = true
	}
	require.Equal(t, confirmed, seen)
}
