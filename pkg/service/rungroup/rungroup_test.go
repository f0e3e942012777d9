package rungroup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

func untilEnd(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestFirstFailureStopsTheOthers(t *testing.T) {
	g := rungroup.New(rungroup.Config{})
	stopped := false
	g.Go("patient", func(ctx context.Context) error {
		<-ctx.Done()
		stopped = true
		return context.Cause(ctx)
	})
	g.Go("breaker", func(context.Context) error { return errBroken })
	err := g.Run(t.Context())
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, "breaker: broken", err.Error(), "the cause is reported once, by its part")
	require.True(t, stopped, "Run waits for the others")
}

func TestEndOfContextIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := rungroup.New(rungroup.Config{})
	g.Go("a", untilEnd)
	g.Go("b", func(ctx context.Context) error { cancel(); <-ctx.Done(); return nil })
	require.NoError(t, g.Run(ctx))
}

func TestFailureWhileStoppingIsReported(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := rungroup.New(rungroup.Config{})
	g.Go("handover", func(ctx context.Context) error { cancel(); <-ctx.Done(); return errBroken })
	require.ErrorIs(t, g.Run(ctx), errBroken)
}

func TestPanicIsAFailure(t *testing.T) {
	g := rungroup.New(rungroup.Config{})
	g.Go("patient", untilEnd)
	g.Go("wild", func(context.Context) error { panic("on purpose") })
	err := g.Run(t.Context())
	var panicked *rungroup.PanicError
	require.ErrorAs(t, err, &panicked)
	require.Equal(t, "on purpose", panicked.Value)
	require.Contains(t, string(panicked.Stack), "rungroup_test")
	require.Contains(t, err.Error(), "wild: panic: on purpose")
}

func TestAPartThatIsDoneStopsNothing(t *testing.T) {
	g := rungroup.New(rungroup.Config{})
	done := make(chan struct{})
	g.Go("once", func(context.Context) error { close(done); return nil })
	g.Go("other", func(ctx context.Context) error {
		<-done
		return ctx.Err()
	})
	require.NoError(t, g.Run(t.Context()))
}

func TestPartsAddedWhileRunning(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := rungroup.New(rungroup.Config{})
	g.Go("parent", func(ctx context.Context) error {
		g.Go("child", func(context.Context) error { cancel(); return errBroken })
		<-ctx.Done()
		return nil
	})
	require.ErrorContains(t, g.Run(ctx), "child: broken")
	g.Go("late", func(context.Context) error { t.Error("started after the end"); return nil })
}

func TestStuckPartsAreNamed(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	g := rungroup.New(rungroup.Config{Grace: time.Minute, Clock: clk})
	release := make(chan struct{})
	ended := make(chan struct{})
	g.Go("deaf", func(context.Context) error { <-release; close(ended); return nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	result := make(chan error)
	go func() { result <- g.Run(ctx) }()
	require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
	clk.Step(time.Minute)
	err := <-result
	require.ErrorIs(t, err, rungroup.ErrStuck)
	require.ErrorContains(t, err, "deaf")
	close(release)
	<-ended
}

func TestEmptyGroupEndsAtOnce(t *testing.T) {
	require.NoError(t, rungroup.New(rungroup.Config{}).Run(t.Context()))
}
