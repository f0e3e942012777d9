package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// Announced, found or taken over: one number bounds them all.
func TestJobsAtOnceAreBounded(t *testing.T) {
	inBubble(t, func(b *bed) {
		finishing := make(chan struct{})
		one := b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			<-finishing
			return finishJob(ctx, h)
		}}, nil)
		b.createJob("a", phaseNew)
		b.createJob("b", phaseRunning)
		b.advanceClock(time.Second)
		require.Len(b, b.notedRuns(), 2)
		b.createJob("c", phaseNew)
		b.createJob("d", phaseRunning)
		b.advanceClock(engine.Overdue)
		require.Len(b, b.notedRuns(), 2)
		o := one.engine.Handle(b.Context(), &workv1.Hint{Kind: "ConfigMap", Namespace: namespace, Name: "c", Uid: "c-uid"})
		require.True(b, o.Retries(), "other replicas may have a place")
		close(finishing)
		b.advanceClock(engine.Overdue)
		require.Len(b, b.notedRuns(), 4)
		for _, name := range []string{"a", "b", "c", "d"} {
			require.Equal(b, phaseDone, jobPhase(b.getJob(name)))
		}
	})
}

// The claim of a job was taken from a holder that hangs, and has no holder: the same process begins
// the job again, although it has one place. The work that hangs is fenced.
func TestAHungJobWithoutItsClaimIsBegunAgainHere(t *testing.T) {
	for name, down := range map[string]bool{"after a hint": false, "without messages": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				answer, fenced := make(chan struct{}), make(chan error, 2)
				end := sync.OnceFunc(func() { close(answer) })
				defer end() // a test that fails does not hang
				b.bus.Down(down)
				b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
					if h.Claim.Epoch > 1 || h.Object.Name == "other" {
						return finishJob(ctx, h)
					}
					<-answer
					_, err := h.Finish(context.WithoutCancel(ctx), setPhase(phaseFailed))
					fenced <- err
					fenced <- h.Confirm(context.WithoutCancel(ctx))
					return err
				}}, func(c *engine.Config[*job]) { c.Concurrency = 1 })
				b.createJob("j", phaseNew)
				b.advanceClock(engine.Overdue + engine.Period)
				b.editJob("j", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Epoch: 2})) })
				b.requireRunsAfter(time.Second, "one/j@1", "one/j@3")
				require.Equal(b, phaseDone, jobPhase(b.getJob("j")))
				b.createJob("other", phaseNew)
				b.requireRunsAfter(engine.Overdue+engine.Period, "one/j@1", "one/j@3", "one/other@1")
				end()
				require.ErrorIs(b, <-fenced, claim.ErrLost)
				require.ErrorIs(b, <-fenced, claim.ErrLost)
			})
		})
	}
}

// The hint of a job without a place occupied a worker of hints: what came after it began after Overdue.
func TestAJobThatLeftItsPlaceHoldsUpNoHint(t *testing.T) {
	inBubble(t, func(b *bed) {
		finishing := make(chan struct{})
		finish := sync.OnceFunc(func() { close(finishing) })
		defer finish() // a test that fails does not hang
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			if h.Object.Name == "idle" {
				h.LeavePlace()
				h.LeavePlace() // again is harmless
				<-finishing
			}
			return finishJob(ctx, h)
		}}, func(c *engine.Config[*job]) { c.Concurrency = 1 })
		b.createJob("idle", phaseNew)
		b.requireRunsAfter(time.Second, "one/idle@1")
		b.createJob("other", phaseNew)
		b.requireRunsAfter(time.Second, "one/idle@1", "one/other@1")
		require.Equal(b, phaseDone, jobPhase(b.getJob("other")))
		finish()
		b.advanceClock(time.Second)
		require.Equal(b, phaseDone, jobPhase(b.getJob("idle")))
	})
}

func TestAHintOfAHeldJobIsDone(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{run: untilStopped}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		two := b.startReplica("two", &kind{}, nil)
		require.Equal(b, messaging.Done(), two.engine.Handle(b.Context(), &workv1.Hint{Kind: "ConfigMap", Namespace: namespace, Name: "j", Uid: "j-uid"}))
		var held *claim.HeldError
		require.ErrorAs(b, two.engine.Run(b.Context(), "j", "j-uid"), &held)
		require.Equal(b, "one", held.Owner)
	})
}

// events records the events of an engine.
type events struct{ *bed }

// Eventf implements engine.Events.
func (e events) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	o, ok := about.(*job)
	require.True(e, ok)
	e.noteRun(fmt.Sprintf("%s %s/%s %s: %s", reason, o.Namespace, o.Name, o.UID, fmt.Sprintf(note, args...)))
}

// A job whose holder died has none until a place is free: without an event it would seem to hang.
func TestATakeoverThatWaitsForAPlaceIsReported(t *testing.T) {
	inBubble(t, func(b *bed) {
		dying := b.startReplica("one", &kind{run: untilStopped}, func(c *engine.Config[*job]) { c.Concurrency = 3 })
		for _, name := range []string{"a", "b", "c"} {
			b.createJob(name, phaseNew)
		}
		b.advanceClock(time.Second)
		finishing := make(chan struct{})
		b.startReplica("two", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			select {
			case <-finishing:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return finishJob(ctx, h)
		}}, func(c *engine.Config[*job]) { c.Concurrency, c.Events = 1, events{b} })
		b.createJob("x", phaseNew)
		b.advanceClock(time.Second)
		require.Len(b, b.notedRuns(), 4, "%v", b.notedRuns())
		dying.kill()
		b.advanceClock(timeout + 4*engine.Period)
		said := func(name string) string {
			return "Waiting velero/" + name + " " + name + "-uid: waits for a place in tester: it works on 1 jobs, which is as many as it may"
		}
		require.ElementsMatch(b, []string{said("a"), said("b"), said("c")}, b.notedRuns()[4:], "each once")
		for _, name := range []string{"a", "b", "c"} {
			require.Equal(b, 1, strings.Count(b.log.String(), `msg="Job waits" replica=two kind=ConfigMap name=`+name+" "))
		}
		close(finishing)
		b.advanceClock(engine.Overdue)
		for _, name := range []string{"a", "b", "c", "x"} {
			require.Equal(b, phaseDone, jobPhase(b.getJob(name)))
		}
		b.createJob("y", phaseRunning)
		b.advanceClock(time.Second)
		require.Len(b, b.notedRuns(), 4+3+4, "what gets a place at once is not reported")
	})
}
