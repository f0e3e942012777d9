package linger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/linger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLate = errors.New("too late")

func TestEndsAfterTheLimit(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	stop := make(chan struct{})
	ctx, done := linger.Until(t.Context(), clk, stop, time.Second, errLate)
	defer done()
	require.False(t, clk.HasWaiters(), "nothing is timed before the stop")
	close(stop)
	require.Eventually(t, clk.HasWaiters, 10*time.Second, time.Millisecond)
	require.NoError(t, ctx.Err(), "it goes on when told to stop")
	clk.Step(time.Second)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errLate)
}

func TestEndsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancelCause(t.Context())
	ctx, done := linger.Until(parent, clocktesting.NewFakeClock(time.Unix(0, 0)), nil, time.Second, errLate)
	defer done()
	lost := errors.New("claim lost")
	cancel(lost)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lost)
}

func TestDoneReleasesIt(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	ctx, done := linger.Until(t.Context(), clocktesting.NewFakeClock(time.Unix(0, 0)), stop, time.Hour, errLate)
	done()
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
}
