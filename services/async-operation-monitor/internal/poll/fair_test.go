package poll_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

func hundredIDs() (ids []string) {
	for i := range 100 {
		ids = append(ids, fmt.Sprint("a", i))
	}
	return ids
}

// The grace period of an operation is that of its call, however many operations of its action are
// cancelled at once and however long each call takes.
func TestTheGracePeriodBeginsWhenTheCancelIsSent(t *testing.T) {
	ids := hundredIDs()
	inBubble(t, ids, func(b *bed) {
		p := b.startProcess()
		for _, id := range ids {
			b.plugins.onCancel(id, func(_ context.Context, left time.Duration) (bool, error) {
				require.Equal(b, grace, left)
				time.Sleep(grace - 10*time.Second)
				b.plugins.setBehaviour(id, endingWith("stopped"))
				return true, nil
			})
		}
		b.turn.Cancel = "the backup is cancelled"
		require.True(b, p.pollFor(time.Hour))
		for i, s := range b.recordedStates() {
			require.Equal(b, "the backup is cancelled, the cancel was acknowledged: stopped", s.Error, i)
			require.Equal(b, 1, s.Cancels)
		}
		require.Equal(b, 33, b.plugins.maxConcurrent("cancel vendor.io/a"))
	})
}

// Many operations whose calls are quick are cancelled within one poll or two.
func TestManyOperationsAreCancelledQuickly(t *testing.T) {
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprint("a", i))
	}
	inBubble(t, ids, func(b *bed) {
		p := b.startProcess()
		for _, id := range ids {
			b.plugins.onCancel(id, func(context.Context, time.Duration) (bool, error) {
				time.Sleep(50 * time.Millisecond)
				b.plugins.setBehaviour(id, endingWith("stopped"))
				return true, nil
			})
		}
		b.turn.Cancel = "the backup is cancelled"
		began := time.Now()
		require.True(b, p.pollFor(time.Hour))
		require.Less(b, time.Since(began), 30*time.Second)
		require.Less(b, b.countRecords(), 200)
	})
}

// The calls of one job that hang do not keep those of another from being made, neither about
// progress nor to cancel.
func TestAJobWhoseCallsHangHoldsUpNoOtherJob(t *testing.T) {
	ids := hundredIDs()
	inBubble(t, ids, func(b *bed) {
		p := b.startProcess()
		for _, id := range ids {
			b.plugins.setBehaviour(id, hangUntilDone)
			b.plugins.onCancel(id, func(ctx context.Context, _ time.Duration) (bool, error) {
				<-ctx.Done()
				return false, ctx.Err()
			})
		}
		b.turn.Cancel = "the backup is cancelled"
		p.pollOnce()
		p.pollOnce()

		job := operation.Job{Kind: operation.KindBackup, Name: "other", UID: "v"}
		b.sealOperations(operation.List{Job: job, Epoch: 1, Operations: []operation.Operation{
			{Action: "vendor.io/a", ID: "x", Created: time.Now()}, {Action: "vendor.io/a", ID: "y", Created: time.Now()}}})
		other, err := p.poller.Open(b.Context(), b.store, job)
		require.NoError(b, err)
		b.plugins.setBehaviour("x", endingWith(""))
		r, err := other.Poll(b.Context(), b.store, poll.Input{JSON: []byte("{}"), Timeout: limit})
		require.NoError(b, err)
		require.False(b, r.Ended)
		require.Equal(b, operation.Completed, other.States()[0].Phase)
		b.plugins.onCancel("y", func(context.Context, time.Duration) (bool, error) {
			b.plugins.setBehaviour("y", endingWith("stopped"))
			return true, nil
		})
		began := time.Now()
		for !r.Ended {
			r, err = other.Poll(b.Context(), b.store, poll.Input{JSON: []byte("{}"), Timeout: limit, Cancel: "the backup is cancelled"})
			require.NoError(b, err)
			time.Sleep(r.Next)
		}
		require.Less(b, time.Since(began), 15*time.Second)
		require.Equal(b, "the backup is cancelled, the cancel was acknowledged: stopped", other.States()[1].Error)
	})
}

// ahead is a clock that is fast.
type ahead struct {
	clock.RealClock
	by time.Duration
}

func (a ahead) Now() time.Time                         { return time.Now().Add(a.by) }
func (a ahead) Since(t time.Time) time.Duration        { return a.Now().Sub(t) }
func (a ahead) NewTimer(d time.Duration) clock.Timer   { return a.RealClock.NewTimer(d) }
func (a ahead) NewTicker(d time.Duration) clock.Ticker { return a.RealClock.NewTicker(d) }

// A replica whose clock is an hour ahead, or behind, ends no grace period early and none late: it
// counts what it measured itself.
func TestAGracePeriodIsMeasuredByOneClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			inBubble(t, []string{"a"}, func(b *bed) {
				first, second := b.startProcess(), b.startProcess(func(c *poll.Config) { c.Clock = ahead{by: by} })
				b.turn.Cancel = "the backup is cancelled"
				began := time.Now()
				first.pollOnce()
				for !second.pollOnce().Ended {
					require.Less(b, time.Since(began), grace+5*time.Second)
					time.Sleep(time.Second) // until the call is made
					_, told := b.plugins.countCalls("a")
					require.Equal(b, 1, told)
					first.job.Open()
					if time.Since(began) < grace/2 {
						first.pollOnce()
					}
				}
				require.GreaterOrEqual(b, time.Since(began), grace)
				require.Equal(b, "the backup is cancelled, the cancel was acknowledged, but the operation did not end in time; it may still be running", b.errorOf(0))
			})
		})
	}
}

// Records are bounded by their bytes, and a long reason leaves room for what became of the cancel.
func TestLongReasonsGoIntoRecordsThatCanBeRead(t *testing.T) {
	ids := hundredIDs()
	inBubble(t, ids, func(b *bed) {
		p := b.startProcess()
		b.turn.Cancel = "the backup failed: " + strings.Repeat("\x00", 1<<20)
		for _, id := range ids {
			b.plugins.setBehaviour(id, func(context.Context) (action.Progress, error) {
				return action.Progress{Units: strings.Repeat("\x00", 8<<10), Description: strings.Repeat("\x00", 8<<10)}, nil
			})
		}
		require.True(b, p.pollFor(time.Hour))
		for _, key := range b.store.Keys() {
			data, _ := b.store.Bytes(key)
			require.Less(b, len(data), 5<<20, key)
		}
		require.Contains(b, b.errorOf(0), "the cancel was acknowledged, but the operation did not end in time")
	})
}
