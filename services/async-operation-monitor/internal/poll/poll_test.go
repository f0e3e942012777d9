package poll_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

var errBroken = errors.New("the process died")

func TestOperationsAreFollowedToTheirEnds(t *testing.T) {
	inBubble(t, []string{"a1", "a2", "a3"}, func(b *bed) {
		p := b.startProcess()
		started := time.Now().Add(time.Second)
		for _, id := range []string{"a1", "a2", "a3"} {
			b.plugins.setBehaviour(id, func(context.Context) (action.Progress, error) {
				return action.Progress{Completed: 1, Total: 9, Units: "Bytes", Description: "copying", Started: started}, nil
			})
		}
		require.False(b, p.pollFor(time.Minute))
		require.Equal(b, 0, b.countRecords(), "progress is not recorded")
		require.Equal(b, operation.InProgress, p.job.States()[0].Phase)
		require.EqualValues(b, 1, p.job.States()[0].Completed)
		require.Equal(b, 3, p.job.Open())

		b.plugins.setBehaviour("a1", endingWith(""))
		b.plugins.setBehaviour("a2", endingWith("no space"))
		time.Sleep(frequency)
		r := p.pollOnce()
		require.False(b, r.Ended)
		require.Equal(b, 1, b.countRecords(), "all events of one poll are one record")
		require.Equal(b, operation.Completed, b.recordedStates()[0].Phase)
		require.Equal(b, "no space", b.errorOf(1))
		require.Equal(b, operation.New, b.recordedStates()[2].Phase)
		require.Equal(b, 1, p.job.Open())

		again := b.startProcess()
		b.plugins.setBehaviour("a3", endingWith(""))
		asked, _ := b.plugins.countCalls("a1")
		require.True(b, again.pollOnce().Ended)
		now, _ := b.plugins.countCalls("a1")
		require.Equal(b, asked, now, "what has ended is not asked about again")
		require.Equal(b, map[string]int{"Completed": 2, "Failed": 1}, b.counts.ended)
		require.Equal(b, operation.Summary{Total: 3, Completed: 2, Failed: 1}, again.job.Summary())
	})
}

func TestTheFrequencyIsThatOfTheAction(t *testing.T) {
	inBubble(t, []string{"a", "b", "c"}, func(b *bed) {
		p := b.startProcess(func(c *poll.Config) {
			c.Frequencies = map[string]time.Duration{"vendor.io/b": 2 * time.Second, "vendor.io/c": time.Minute}
		})
		require.False(b, p.pollFor(59*time.Second))
		for id, want := range map[string]int{"a": 6, "b": 30, "c": 1} {
			asked, _ := b.plugins.countCalls(id)
			require.Equal(b, want, asked, id)
		}
	})
}

// One call that hangs held up the others of its job for as long as it took.
func TestAHangingCallDelaysNoOther(t *testing.T) {
	inBubble(t, []string{"a1", "a2", "b1"}, func(b *bed) {
		p := b.startProcess()
		b.plugins.setBehaviour("a1", hangUntilDone)
		b.plugins.setBehaviour("a2", endingWith(""))
		b.plugins.setBehaviour("b1", endingWith("no"))
		began := time.Now()
		require.False(b, p.pollOnce().Ended)
		require.LessOrEqual(b, time.Since(began), 2*time.Second)
		require.Equal(b, operation.Completed, b.recordedStates()[1].Phase)
		require.Equal(b, "no", b.errorOf(2))
		began = time.Now()
		p.pollOnce()
		require.Zero(b, time.Since(began), "a call that is known to hang is not waited for")
		require.False(b, p.pollFor(time.Minute))
		asked, _ := b.plugins.countCalls("a1")
		require.Equal(b, 2, asked, "one call at a time, each within its deadline")
		require.Equal(b, operation.New, b.recordedStates()[0].Phase)
	})
}

// An action whose calls all hang, and do not even end with their context, costs its own operations
// only. Those fail in their time.
func TestAnActionThatNeverAnswersIsBoundedByTheTimeout(t *testing.T) {
	ids := []string{"b"}
	for i := range 20 {
		ids = append(ids, fmt.Sprint("a", i))
	}
	inBubble(t, ids, func(b *bed) {
		release := make(chan struct{})
		p := b.startProcess()
		for _, id := range ids[1:] {
			b.plugins.setBehaviour(id, func(context.Context) (action.Progress, error) {
				<-release
				return action.Progress{}, nil
			})
			b.plugins.onCancel(id, func(context.Context, time.Duration) (bool, error) {
				<-release
				return true, nil
			})
		}
		b.plugins.setBehaviour("b", endingWith(""))
		require.False(b, p.pollFor(time.Minute))
		require.Equal(b, operation.Completed, b.recordedStates()[0].Phase)
		require.Equal(b, 9, b.plugins.maxConcurrent("vendor.io/a"))
		time.Sleep(limit)
		require.True(b, p.pollFor(time.Hour))
		require.Equal(b, "timed out after 4h0m0s, the cancel was not acknowledged; it may still be running", b.errorOf(1))
		require.Equal(b, "timed out after 4h0m0s, the cancel was not acknowledged; it may still be running", b.errorOf(20))
		close(release)
	})
}

func TestAThousandOperationsAreAskedAFewAtATime(t *testing.T) {
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("%c%d", 'a'+i%2, i))
	}
	inBubble(t, ids, func(b *bed) {
		p := b.startProcess()
		for _, id := range ids {
			b.plugins.setBehaviour(id, func(context.Context) (action.Progress, error) {
				time.Sleep(50 * time.Millisecond)
				return action.Progress{Done: true}, nil
			})
		}
		began := time.Now()
		require.True(b, p.pollFor(time.Minute))
		require.Less(b, time.Since(began), 6*time.Second, "what the window of one poll has no time for is asked soon")
		require.Equal(b, 9, b.plugins.maxConcurrent("vendor.io/a"))
		require.Equal(b, 9, b.plugins.maxConcurrent("vendor.io/b"))
		require.Equal(b, 1000, b.counts.polled["ended"])
		require.LessOrEqual(b, b.countRecords(), 3)
	})
}

// A process that died and a plugin that is missing for hours do not fail the operation. Velero
// fails it at once.
func TestAFailedCallSaysNothingOfTheOperation(t *testing.T) {
	inBubble(t, []string{"a"}, func(b *bed) {
		p := b.startProcess()
		b.plugins.setBehaviour("a", failingWith(errBroken))
		require.False(b, p.pollFor(3*time.Hour))
		times := b.plugins.askedAt("a")
		for i, want := range []int{10, 20, 40, 80, 160, 300, 300} {
			require.Equal(b, time.Duration(want)*time.Second, times[i+1].Sub(times[i]), "the pauses grow")
		}
		b.plugins.setBehaviour("a", nil)
		require.False(b, p.pollFor(6*time.Minute))
		times = b.plugins.askedAt("a")
		require.Equal(b, frequency, times[len(times)-1].Sub(times[len(times)-2]), "a success ends the pauses")
		b.plugins.setBehaviour("a", endingWith(""))
		require.True(b, p.pollFor(time.Minute))
		require.Equal(b, operation.Completed, b.recordedStates()[0].Phase)
	})
}

func TestAnUnknownOperationFailsOnceThatWasSaidThreeTimesInARow(t *testing.T) {
	inBubble(t, []string{"a"}, func(b *bed) {
		p := b.startProcess()
		unknown := failingWith(fmt.Errorf("action vendor.io/a: Progress: %w", action.ErrUnknownOperation))
		b.plugins.setBehaviour("a", unknown)
		require.False(b, p.pollFor(15*time.Second))
		b.plugins.setBehaviour("a", failingWith(errBroken))
		require.False(b, p.pollFor(30*time.Second), "said twice")
		b.plugins.setBehaviour("a", unknown)
		require.True(b, p.pollFor(time.Minute))
		require.Equal(b, "the operation is lost: action vendor.io/a: Progress: no such operation", b.errorOf(0))
	})
}

// An action that this replica does not have may be there in another, or after a restart: that does
// not fail the operation before its timeout.
func TestAMissingActionFailsNoOperationBeforeItsTimeout(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(b *bed) {
		p := b.startProcess()
		missing := fmt.Errorf("action vendor.io/b: %w", action.ErrUnknownAction)
		b.plugins.setBehaviour("a", failingWith(missing))
		b.plugins.setBehaviour("b", failingWith(missing))
		b.plugins.onCancel("b", func(context.Context, time.Duration) (bool, error) { return false, missing })
		require.False(b, p.pollFor(limit-time.Hour))
		require.Zero(b, b.countRecords())
		b.plugins.setBehaviour("a", endingWith(""))
		require.False(b, p.pollFor(10*time.Minute))
		require.Equal(b, operation.Completed, b.recordedStates()[0].Phase)
		require.True(b, p.pollFor(2*time.Hour))
		require.Equal(b, "timed out after 4h0m0s, the cancel failed: action vendor.io/b: no such action; it may still be running; "+
			"the last poll failed: action vendor.io/b: no such action", b.errorOf(1))
	})
}

func TestAStallIsReportedOnce(t *testing.T) {
	inBubble(t, []string{"a", "b"}, func(b *bed) {
		p := b.startProcess(func(c *poll.Config) { c.Stall = 30 * time.Minute })
		bytes := int64(0)
		b.plugins.setBehaviour("a", func(context.Context) (action.Progress, error) { return action.Progress{Completed: bytes}, nil })
		b.plugins.setBehaviour("b", func(context.Context) (action.Progress, error) { return action.Progress{Updated: time.Now()}, nil })
		require.False(b, p.pollFor(29*time.Minute))
		require.Empty(b, p.stalls)
		require.False(b, p.pollFor(time.Hour))
		require.Len(b, p.stalls, 1)
		require.Equal(b, "a", p.stalls[0].Operation.ID)
		require.Equal(b, 30*time.Minute, p.stalls[0].For.Round(time.Minute))
		bytes = 1
		require.False(b, p.pollFor(time.Hour))
		require.Len(b, p.stalls, 2, "it moved in between")
		require.Equal(b, 2, b.counts.stalls)
	})
}

// A record is bounded, and so are an action's texts in it.
func TestRecordsAreBounded(t *testing.T) {
	var ids []string
	for i := range 4100 {
		ids = append(ids, fmt.Sprint("a", i))
	}
	inBubble(t, ids, func(b *bed) {
		p := b.startProcess()
		for _, id := range ids {
			b.plugins.setBehaviour(id, endingWith(strings.Repeat("ü", 3000)))
		}
		require.True(b, p.pollOnce().Ended)
		require.Equal(b, 5, b.countRecords())
		text := b.errorOf(4099)
		require.LessOrEqual(b, len(text), 1027)
		require.True(b, strings.HasSuffix(text, "ü..."))
	})
}

// A poll that comes after the end, such as for a request that was under way, makes no call.
func TestNothingIsPolledAfterTheEnd(t *testing.T) {
	inBubble(t, []string{"a"}, func(b *bed) {
		p := b.startProcess()
		p.poller.Close()
		_, err := p.job.Poll(b.Context(), b.store, b.turn)
		require.ErrorIs(b, err, poll.ErrClosed)
		require.Empty(b, b.plugins.askedAt("a"))
	})
}

// A call that a stopping process cut off is no failed call.
func TestAStopEndsTheCallsUnderWay(t *testing.T) {
	inBubble(t, []string{"a"}, func(b *bed) {
		p := b.startProcess()
		b.plugins.setBehaviour("a", hangUntilDone)
		p.pollOnce()
		began := time.Now()
		p.poller.Close()
		require.Zero(b, time.Since(began))
	})
}
