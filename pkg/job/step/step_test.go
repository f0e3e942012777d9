package step_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/step"
)

// holder is asked to stop where request is set.
type holder struct{ request *mark.CancelError }

func (h holder) Cancelling() context.Context { return context.Background() }

func (h holder) Cancelled() *mark.CancelError { return h.request }

var errPause, errRecorded, errBroken = errors.New("waits"), errors.New("recorded before"), errors.New("broken")

// steps of these tests note their names in the state.
type names struct{ done []string }

func newRunner(h holder) *step.Runner[*names] {
	return &step.Runner[*names]{
		State: &names{}, Holder: h, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
		Pauses:   func(err error) bool { return errors.Is(err, errPause) },
		Outranks: func(_ context.Context, err error) bool { return errors.Is(err, errRecorded) },
	}
}

func newStep(name string, needs, gives []step.Value, err error) step.Step[*names] {
	return step.Step[*names]{Name: name, Needs: needs, Gives: gives, Run: func(_ context.Context, s *names) error {
		s.done = append(s.done, name)
		return err
	}}
}

func TestStepsHandValuesOn(t *testing.T) {
	r := newRunner(holder{})
	r.Give("start")
	require.NoError(t, r.Run(t.Context(), []step.Step[*names]{
		newStep("a", []step.Value{"start"}, []step.Value{"plan"}, nil), newStep("b", []step.Value{"plan"}, nil, nil),
	}))
	require.Equal(t, []string{"a", "b"}, r.State.done)
}

func TestAStepInTheWrongPlaceIsAnError(t *testing.T) {
	r := newRunner(holder{})
	err := r.Run(t.Context(), []step.Step[*names]{
		newStep("first", nil, []step.Value{"plan"}, nil), newStep("second", []step.Value{"tarball"}, nil, nil),
	})
	require.ErrorContains(t, err, `"second" needs "tarball"`)
	require.Equal(t, []string{"first"}, r.State.done)
}

// A list ends with the error of a step. A decided end is no error, and the values of the step that ended the list are not given.
func TestAStepEndsTheList(t *testing.T) {
	for _, end := range []error{step.ErrDecided, errPause, errBroken} {
		r := newRunner(holder{})
		err := r.Run(t.Context(), []step.Step[*names]{newStep("a", nil, []step.Value{"x"}, end), newStep("b", []step.Value{"x"}, nil, nil)})
		if errors.Is(end, step.ErrDecided) {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, end)
		}
		require.Equal(t, []string{"a"}, r.State.done)
		require.ErrorContains(t, r.Run(t.Context(), []step.Step[*names]{newStep("b", []step.Value{"x"}, nil, nil)}), `"b" needs "x"`)
	}
}

// A request to cancel is the error of a cancellable step that failed, unless its error counts more, and of no other step.
func TestARequestToCancelEndsCancellableSteps(t *testing.T) {
	request := &mark.CancelError{Request: mark.CancelRequest{By: "alice"}}
	for name, c := range map[string]struct {
		cancellable bool
		err, want   error
	}{
		"done all the same":     {cancellable: true},
		"ended":                 {cancellable: true, err: errBroken, want: request},
		"not cancellable":       {err: errBroken, want: errBroken},
		"an error that counts":  {cancellable: true, err: errRecorded, want: errRecorded},
		"a pause is overridden": {cancellable: true, err: errPause, want: request},
	} {
		t.Run(name, func(t *testing.T) {
			one := newStep("a", nil, nil, c.err)
			one.Cancellable = c.cancellable
			err := newRunner(holder{request}).Run(t.Context(), []step.Step[*names]{one})
			require.Equal(t, c.want, err)
		})
	}
}

// A step with a grace works on after the request, for that long.
func TestARequestToCancelLeavesAStepItsGrace(t *testing.T) {
	cancelling, request := context.WithCancelCause(t.Context())
	clk := clocktesting.NewFakeClock(time.Now())
	r := newRunner(holder{request: &mark.CancelError{}})
	r.Clock, r.Holder = clk, cancelledHolder{holder{&mark.CancelError{}}, cancelling}
	one := newStep("a", nil, nil, nil)
	one.Cancellable, one.Grace = true, func(*names) time.Duration { return time.Minute }
	one.Run = func(ctx context.Context, _ *names) error {
		request(&mark.CancelError{})
		require.Eventually(t, clk.HasWaiters, time.Minute, time.Millisecond)
		require.NoError(t, ctx.Err())
		clk.Step(time.Minute)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	var asked *mark.CancelError
	require.ErrorAs(t, r.Run(t.Context(), []step.Step[*names]{one}), &asked)
}

type cancelledHolder struct {
	holder
	cancelling context.Context
}

func (h cancelledHolder) Cancelling() context.Context { return h.cancelling }
