package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/job/engine"
)

var errLate = errors.New("too late")

func TestUntilEndsAfterTheGracePeriod(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	stop := make(chan struct{})
	ctx, done := engine.WithStopGrace(t.Context(), clk, stop, time.Second, errLate)
	defer done()
	require.False(t, clk.HasWaiters(), "nothing is timed before the stop")
	close(stop)
	require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
	require.NoError(t, ctx.Err(), "it goes on when told to stop")
	clk.Step(time.Second)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errLate)
}

func TestUntilEndsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancelCause(t.Context())
	ctx, done := engine.WithStopGrace(parent, clocktesting.NewFakeClock(time.Unix(0, 0)), nil, time.Second, errLate)
	defer done()
	lost := errors.New("claim lost")
	cancel(lost)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lost)
}

func TestUntilIsReleased(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	ctx, done := engine.WithStopGrace(t.Context(), clocktesting.NewFakeClock(time.Unix(0, 0)), stop, time.Hour, errLate)
	done()
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
}

func TestOutliveEndsAfterItsParent(t *testing.T) {
	gone := errors.New("told to stop")
	for want, cause := range map[error]error{errLate: errLate, gone: nil} {
		clk := clocktesting.NewFakeClock(time.Unix(0, 0))
		parent, stop := context.WithCancelCause(t.Context())
		ctx, done := engine.WithGrace(parent, clk, time.Second, cause)
		stop(gone)
		require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
		require.NoError(t, ctx.Err(), "it goes on when told to stop")
		clk.Step(time.Second)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), want)
		done()
	}
}

// A context that joined an ended one has ended when Join returns: what checks it begins nothing.
func TestJoinEndsAtOnceWithWhatHasEnded(t *testing.T) {
	cause := errors.New("asked to stop")
	other, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	joined, release := engine.Join(t.Context(), other)
	defer release()
	require.Equal(t, cause, context.Cause(joined))
}
