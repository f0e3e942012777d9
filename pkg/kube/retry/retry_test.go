package retry_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

var errAway = apierrors.NewServiceUnavailable("away")

// failingCall returns a call that fails n times, and the moments it was called at.
func failingCall(n int, err error) (do func() error, calls *[]time.Time) {
	calls = &[]time.Time{}
	return func() error {
		*calls = append(*calls, clock.RealClock{}.Now())
		if len(*calls) <= n {
			return err
		}
		return nil
	}, calls
}

func newLoop() retry.Loop {
	return retry.Loop{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}
}

func TestACallIsRepeatedWhileItsErrorIsTransient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		do, calls := failingCall(12, errAway)
		require.NoError(t, newLoop().Do(t.Context(), "call", do))
		require.Len(t, *calls, 13)
		for i := 1; i < len(*calls); i++ {
			pause := (*calls)[i].Sub((*calls)[i-1])
			least := min(200*time.Millisecond<<(i-1), 10*time.Second)
			require.GreaterOrEqual(t, pause, least, "pause %d", i)
			require.LessOrEqual(t, pause, least+least/5, "pause %d", i)
		}
	})
}

func TestAnErrorThatLastsIsReturnedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		do, calls := failingCall(1, apierrors.NewForbidden(schema.GroupResource{}, "x", nil))
		require.ErrorContains(t, newLoop().Do(t.Context(), "call", do), "forbidden")
		require.Len(t, *calls, 1)
		l := newLoop()
		other := errors.New("another")
		l.Transient = func(err error) bool { return errors.Is(err, other) }
		do, calls = failingCall(1, other)
		require.NoError(t, l.Do(t.Context(), "call", do))
		require.Len(t, *calls, 2)
	})
}

func TestTheBudgetBeginsWithTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop()
		l.Budget, l.First, l.Longest = 10*time.Second, time.Second, time.Second
		do, calls := failingCall(1000, errAway)
		slow := func() error {
			if len(*calls) == 0 {
				<-time.After(time.Minute)
			}
			return do()
		}
		err := l.Do(t.Context(), "call", slow)
		require.ErrorIs(t, err, errAway)
		var over *retry.BudgetError
		require.ErrorAs(t, err, &over)
		require.EqualError(t, over, "gave up after 10s: away")
		spent := (*calls)[len(*calls)-1].Sub((*calls)[0])
		require.Greater(t, spent, 10*time.Second)
		require.Less(t, spent, 12*time.Second)
	})
}

func TestTheEndOfTheContextEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		do, calls := failingCall(1000, errAway)
		require.ErrorIs(t, newLoop().Do(ctx, "call", do), errAway)
		require.Len(t, *calls, 3)
	})
}

func TestWhatLiesBetweenTwoCallsMayEndTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop()
		gone := errors.New("the object is gone")
		l.Between = func(context.Context) error { return gone }
		do, calls := failingCall(1, errAway)
		require.ErrorIs(t, l.Do(t.Context(), "call", do), gone)
		require.Len(t, *calls, 1)
	})
}
