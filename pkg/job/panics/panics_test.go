package panics_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defect panics in a function whose name the stack has.
func defect() error { panic("a defect") }

func TestAPanicIsCarriedThroughGroups(t *testing.T) {
	err := panics.Catch(func() error {
		var outer panics.Group
		outer.Go(func() error {
			inner, ctx := panics.NewGroup(t.Context())
			inner.Go(func() error { <-ctx.Done(); return ctx.Err() })
			inner.Go(defect)
			return inner.Wait()
		})
		return outer.Wait()
	})
	var carried *panics.Error
	require.ErrorAs(t, err, &carried)
	require.Equal(t, "a defect", carried.Value)
	require.Contains(t, string(carried.Stack), "defect", "the stack of where it happened")
}

// Wait returns what ended the context, not what the end of the context made another goroutine return.
func TestTheErrorThatEndsTheOthersIsReturned(t *testing.T) {
	cause := errors.New("broken")
	for range 300 {
		require.Equal(t, cause, panics.ForEach(t.Context(), 64, 64, func(ctx context.Context, i int) error {
			if i == 0 {
				return cause
			}
			<-ctx.Done()
			return ctx.Err()
		}))
	}
}

func TestAPanicGoesBeforeAnEarlierError(t *testing.T) {
	group, ctx := panics.NewGroup(t.Context())
	group.Go(func() error { return errors.New("first") })
	group.Go(func() error { <-ctx.Done(); return defect() })
	require.Panics(t, func() { _ = group.Wait() })
}

func TestErrorsStayErrors(t *testing.T) {
	group, ctx := panics.NewGroup(t.Context())
	failed := errors.New("failed")
	group.SetLimit(1)
	group.Go(func() error { return failed })
	require.ErrorIs(t, group.Wait(), failed)
	require.ErrorIs(t, context.Cause(ctx), failed)
	require.ErrorIs(t, panics.Raise(failed), failed)
	require.NoError(t, panics.Catch(func() error { return nil }))
}

func TestForEachEndsTheOtherCalls(t *testing.T) {
	require.Panics(t, func() {
		_ = panics.ForEach(t.Context(), 64, 64, func(ctx context.Context, i int) error {
			if i == 0 {
				return defect()
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	})
}
