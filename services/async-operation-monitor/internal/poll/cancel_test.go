package poll_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// The error of an operation that timed out has the result of the attempt to cancel it.
func TestAnOperationThatTakesTooLongIsCancelledAndFails(t *testing.T) {
	accepts := func(context.Context, time.Duration) (bool, error) { return true, nil }
	refuses := func(context.Context, time.Duration) (bool, error) { return false, nil }
	breaks := func(context.Context, time.Duration) (bool, error) { return false, errBroken }
	runs := func(context.Context) (action.Progress, error) { return action.Progress{}, nil }
	for name, tc := range map[string]struct {
		cancel func(context.Context, time.Duration) (bool, error) // nil: hangs, even when its context has ended
		then   func(context.Context) (action.Progress, error)     // progress from the cancel on
		want   string
		within time.Duration
	}{
		"acknowledged, failed":    {accepts, endingWith("data mover stopped"), "timed out after 4h0m0s, the cancel was acknowledged: data mover stopped", 10 * time.Second},
		"acknowledged, completed": {accepts, endingWith(""), "timed out after 4h0m0s, the cancel was acknowledged: it completed", 10 * time.Second},
		"hanging, ended":          {nil, endingWith("stopped"), "timed out after 4h0m0s, the answer to the cancel is not known: stopped", 10 * time.Second},
		"refused, ended":          {refuses, endingWith("stopped"), "timed out after 4h0m0s, the cancel was refused; then the operation ended: stopped", 10 * time.Second},
		"failed, ended":           {breaks, endingWith(""), "timed out after 4h0m0s, the cancel failed: the process died; then the operation ended: it completed", 10 * time.Second},
		"acknowledged, running":   {accepts, runs, "timed out after 4h0m0s, the cancel was acknowledged, but the operation did not end in time; it may still be running", grace},
		"refused, running":        {refuses, runs, "timed out after 4h0m0s, the cancel was refused; it may still be running", grace},
		"failed, running":         {breaks, runs, "timed out after 4h0m0s, the cancel failed: the process died; it may still be running", grace},
		"failed, cannot be asked": {breaks, failingWith(errBroken), "timed out after 4h0m0s, the cancel failed: the process died; it may still be running; the last poll failed: the process died", grace},
		"hanging, running":        {nil, runs, "timed out after 4h0m0s, the cancel was not acknowledged; it may still be running", grace},
		"all hanging":             {nil, hangUntilDone, "timed out after 4h0m0s, the cancel was not acknowledged; it may still be running; the last poll failed: context deadline exceeded", grace},
		"lost":                    {accepts, failingWith(action.ErrUnknownOperation), "timed out after 4h0m0s, the cancel was acknowledged: the operation is lost: no such operation", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{"a"}, func(b *bed) {
				hung := make(chan struct{})
				p := b.startProcess()
				b.plugins.setBehaviour("a", runs)
				b.plugins.onCancel("a", func(ctx context.Context, left time.Duration) (bool, error) {
					require.Equal(b, grace, left.Round(time.Second))
					b.plugins.setBehaviour("a", tc.then)
					if tc.cancel == nil {
						<-hung
						return false, ctx.Err()
					}
					return tc.cancel(ctx, left)
				})
				require.False(b, p.pollFor(time.Minute))
				time.Sleep(limit - 2*time.Minute)
				require.False(b, p.pollFor(time.Minute-time.Second))
				require.Zero(b, b.countRecords())
				began := time.Now()
				require.True(b, p.pollFor(time.Hour))
				require.LessOrEqual(b, time.Since(began), tc.within+5*time.Second)
				require.Equal(b, tc.want, b.errorOf(0))
				_, told := b.plugins.countCalls("a")
				require.Equal(b, 1, told)
				close(hung)
			})
		})
	}
}

// A request that any process recorded is carried out by the process that polls next, once; the other
// operations go on.
func TestARequestEndsOneOperation(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(b *bed) {
		p := b.startProcess()
		require.False(b, p.pollFor(time.Minute))
		log, err := operation.Open(b.Context(), b.store, theJob)
		require.NoError(b, err)
		for _, reason := range []string{"cancelled by ann", "cancelled by bob"} {
			require.NoError(b, log.Append(b.Context(), operation.Event{Operation: 0, Time: time.Now(), Request: &operation.Request{Reason: reason}}))
		}
		b.plugins.onCancel("a", func(context.Context, time.Duration) (bool, error) {
			b.plugins.setBehaviour("a", endingWith("stopped"))
			return true, nil
		})
		require.False(b, p.pollFor(time.Minute))
		require.Equal(b, "cancelled by ann, the cancel was acknowledged: stopped", b.errorOf(0))
		require.False(b, b.recordedStates()[1].Phase.Ended())
		_, told := b.plugins.countCalls("a")
		require.Equal(b, 1, told)
		_, told = b.plugins.countCalls("b")
		require.Zero(b, told)
	})
}

func TestTheTimeoutIsThatOfTheAction(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(b *bed) {
		b.turn.Timeout = 20 * time.Minute
		p := b.startProcess(func(c *poll.Config) { c.Timeouts = map[string]time.Duration{"vendor.io/b": 90 * time.Minute} })
		for _, id := range []string{"a", "b"} {
			b.plugins.onCancel(id, func(context.Context, time.Duration) (bool, error) {
				b.plugins.setBehaviour(id, endingWith("stopped"))
				return true, nil
			})
		}
		require.False(b, p.pollFor(30*time.Minute))
		require.Equal(b, "timed out after 20m0s, the cancel was acknowledged: stopped", b.errorOf(0))
		require.Equal(b, operation.New, b.recordedStates()[1].Phase)
		require.True(b, p.pollFor(2*time.Hour))
		require.Equal(b, "timed out after 1h30m0s, the cancel was acknowledged: stopped", b.errorOf(1))
	})
}

// An operation that ended while nothing was polled is no timeout, however long its plugin takes to
// answer for the first time.
func TestAnOperationIsAskedBeforeItTimesOut(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(b *bed) {
		time.Sleep(2 * limit)
		b.plugins.setBehaviour("a", func(context.Context) (action.Progress, error) {
			time.Sleep(5 * time.Second) // longer than a poll waits
			return endingWith("")(b.Context())
		})
		b.plugins.setBehaviour("b", hangUntilDone)
		require.True(b, b.startProcess().pollFor(time.Hour))
		require.Equal(b, operation.Completed, b.recordedStates()[0].Phase)
		_, told := b.plugins.countCalls("a")
		require.Zero(b, told)
		require.Contains(b, b.errorOf(1), "timed out after", "one that does not answer is not waited for without end")
	})
}

// A process died between the record of an intent and the call, or during it: the two cannot be
// distinguished.
func TestAnIntentThatADeadProcessLeftIsRepeatedOnce(t *testing.T) {
	inBubble(t, []string{"a"}, func(b *bed) {
		log, err := operation.Open(b.Context(), b.store, theJob)
		require.NoError(b, err)
		require.NoError(b, log.Append(b.Context(), operation.Event{Time: time.Now(), Cancel: &operation.Cancel{Reason: "timed out after 1s"}}))
		second := b.startProcess()
		b.plugins.onCancel("a", func(context.Context, time.Duration) (bool, error) { return false, context.Canceled })
		require.False(b, second.pollFor(grace/2-2*time.Second))
		_, told := b.plugins.countCalls("a")
		require.Zero(b, told, "the one that wrote the intent may be alive")

		b.store.Inject(func(op memstore.Op, _ string) error { // dies before it records the answer
			if _, told := b.plugins.countCalls("a"); told > 0 && op == memstore.OpCreate {
				return errBroken
			}
			return nil
		})
		for told == 0 {
			second.pollOnce()
			time.Sleep(time.Second)
			_, told = b.plugins.countCalls("a")
		}
		b.store.Inject(nil)
		require.Equal(b, 2, b.recordedStates()[0].Cancels)

		third := b.startProcess()
		require.True(b, third.pollFor(time.Hour))
		_, told = b.plugins.countCalls("a")
		require.Equal(b, 1, told, "an intent is not repeated twice")
		require.Equal(b, "timed out after 1s, the cancel was not acknowledged; it may still be running", b.errorOf(0))
	})
}

// The store took the record, and the answer was lost.
func TestAnIntentWhoseAnswerWasLostIsCarriedOutOnce(t *testing.T) {
	inBubble(t, []string{"a"}, func(b *bed) {
		p := b.startProcess()
		b.turn.Cancel = "the backup is cancelled"
		lost := false
		b.store.Inject(func(op memstore.Op, key string) error {
			if op == memstore.OpCreate && !lost {
				lost = true
				b.store.Set(key, []byte(`{"formatVersion":1,"uid":"u","seq":1,"events":[{"operation":0,"time":"`+time.Now().UTC().Format(time.RFC3339Nano)+
					`","cancel":{"reason":"the backup is cancelled"}}]}`))
				return errors.New("connection reset")
			}
			return nil
		})
		_, err := p.job.Poll(b.Context(), b.store, b.turn)
		require.ErrorContains(b, err, "connection reset")
		_, told := b.plugins.countCalls("a")
		require.Zero(b, told, "whether it is recorded is not known")
		p.pollOnce()
		require.True(b, p.pollFor(time.Hour))
		_, told = b.plugins.countCalls("a")
		require.Equal(b, 1, told)
		require.Equal(b, 1, b.recordedStates()[0].Cancels)
	})
}

// Of two replicas that poll one job at the same time one records what both found, and one cancels.
func TestTwoProcessesPollOneJob(t *testing.T) {
	inBubble(t, []string{"a", "b", "c", "d"}, func(b *bed) {
		two := []*process{b.startProcess(), b.startProcess()}
		b.plugins.setBehaviour("a", endingWith(""))
		b.plugins.setBehaviour("b", endingWith("no"))
		for _, id := range []string{"c", "d"} {
			b.plugins.onCancel(id, func(context.Context, time.Duration) (bool, error) {
				time.Sleep(5 * time.Second)
				b.plugins.setBehaviour(id, endingWith("stopped"))
				return true, nil
			})
		}
		var group sync.WaitGroup
		b.turn.Timeout = time.Hour
		for _, p := range two {
			group.Go(func() { p.pollFor(5 * time.Hour) })
		}
		group.Wait()
		for _, id := range []string{"c", "d"} {
			_, told := b.plugins.countCalls(id)
			require.Equal(b, 1, told, id)
		}
		require.Equal(b, operation.Completed, b.recordedStates()[0].Phase)
		require.Equal(b, "no", b.errorOf(1))
		require.Regexp(b, "^timed out after 1h0m0s, (the cancel was acknowledged|the answer to the cancel is not known): stopped$", b.errorOf(3), "the process that sees the end need not be the one that has the answer")
		require.Equal(b, map[string]int{"Completed": 1, "Failed": 3}, b.counts.ended, "each end is recorded once")
		require.Equal(b, 1, b.recordedStates()[2].Cancels)
		require.Equal(b, two[0].job.States(), two[1].job.States())
	})
}

// A bucket that is away for a while delays a job and loses nothing.
func TestABucketThatIsAwayDelaysAPoll(t *testing.T) {
	inBubble(t, []string{"a"}, func(b *bed) {
		p := b.startProcess()
		b.plugins.setBehaviour("a", endingWith(""))
		b.store.Inject(func(op memstore.Op, _ string) error {
			if op == memstore.OpCreate {
				return errBroken
			}
			return nil
		})
		_, err := p.job.Poll(b.Context(), b.store, b.turn)
		require.ErrorIs(b, err, errBroken)
		b.store.Inject(nil)
		require.True(b, p.pollOnce().Ended)
		asked, _ := b.plugins.countCalls("a")
		require.Equal(b, 1, asked)
	})
}
