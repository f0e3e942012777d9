package itemaction

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
)

var errBoom = errors.New("plugin a.io/x: Execute of Pod a/p: boom")

// Actions run per item in the order of their names. A failure costs its item the later actions, which may
// count on the one that failed, and no other item anything. The next attempt shows every item again.
func TestAFailureCostsItsItemTheLaterActions(t *testing.T) {
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
		x.do = nil
		require.NoError(b.t, b.runAttempt(b.t.Context()))
		require.Len(b.t, b.takeNotes(), 9)
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
	})
}

var errLost = errors.New("claim lost")

// A process whose work is another's calls nothing.
func TestALostClaimEndsTheAttempt(t *testing.T) {
	inBothWays(t, podItems("o", "p", "q"), func(b *bed) {
		b.registerAction("a.io/b", everything, func(_ context.Context, object string) error {
			b.confirm = func() error { return errLost }
			return nil
		})
		require.ErrorIs(b.t, b.runAttempt(b.t.Context()), errLost)
		require.Equal(b.t, []string{"a.io/b Pod a/o"}, b.takeNotes())
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
			require.NoError(b.t, b.runAttempt(b.t.Context()))
			require.Len(b.t, b.takeNotes(), 3*len(names))
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
