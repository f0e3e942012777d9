package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
		one := b.start("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			<-finishing
			return finish(ctx, h)
		}}, nil)
		b.add("a", phaseNew)
		b.add("b", phaseRunning)
		b.pass(time.Second)
		require.Len(b, b.noted(), 2)
		b.add("c", phaseNew)
		b.add("d", phaseRunning)
		b.pass(engine.Overdue)
		require.Len(b, b.noted(), 2)
		o := one.engine.Handle(b.Context(), &workv1.Hint{Kind: "ConfigMap", Namespace: namespace, Name: "c", Uid: "c-uid"})
		require.True(b, o.Retries(), "other replicas may have a place")
		close(finishing)
		b.pass(engine.Overdue)
		require.Len(b, b.noted(), 4)
		for _, name := range []string{"a", "b", "c", "d"} {
			require.Equal(b, phaseDone, phase(b.get(name)))
		}
	})
}

// A job whose plugin does not answer holds neither a place nor its hint.
func TestAnIdleJobGivesItsPlaceToOthers(t *testing.T) {
	inBubble(t, func(b *bed) {
		answer := make(chan struct{})
		one := b.start("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			if h.Object.Name == "hung" {
				<-answer
				assert.NoError(b, h.Step(ctx))
			}
			return finish(ctx, h)
		}}, func(c *engine.Config[*job]) { c.Concurrency, c.Idle = 1, 10*time.Second })
		b.add("hung", phaseQueued)
		settled := make(chan messaging.Outcome, 1)
		go func() {
			settled <- one.engine.Handle(b.Context(), &workv1.Hint{Kind: "ConfigMap", Namespace: namespace, Name: "hung", Uid: "hung-uid"})
		}()
		b.after(time.Second, "one/hung@1")
		b.add("other", phaseNew)
		b.after(5*time.Second, "one/hung@1")
		b.after(10*time.Second, "one/hung@1", "one/other@1")
		require.Equal(b, messaging.Done(), <-settled)
		require.Equal(b, phaseRunning, phase(b.get("hung")))
		close(answer)
		b.after(time.Second, "one/hung@1", "one/other@1")
		require.Equal(b, phaseDone, phase(b.get("hung")))
	})
}

// The claim of a job was taken from a holder that hangs, and has no holder: the same process begins
// the job again, although it has one place. The work that hangs is fenced.
func TestAHungJobWithoutItsClaimIsBegunAgainHere(t *testing.T) {
	for name, down := range map[string]bool{"after a hint": false, "without messages": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				answer, fenced := make(chan struct{}), make(chan error, 2)
				b.bus.Down(down)
				b.start("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
					if h.Claim.Epoch > 1 || h.Object.Name == "other" {
						return finish(ctx, h)
					}
					<-answer
					_, err := h.Finish(context.WithoutCancel(ctx), setPhase(phaseFailed))
					fenced <- err
					fenced <- h.Confirm(context.WithoutCancel(ctx))
					return err
				}}, func(c *engine.Config[*job]) { c.Concurrency = 1 })
				b.add("j", phaseNew)
				b.pass(engine.Overdue + engine.Period)
				b.edit("j", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Epoch: 2})) })
				b.after(time.Second, "one/j@1", "one/j@3")
				require.Equal(b, phaseDone, phase(b.get("j")))
				b.add("other", phaseNew)
				b.after(engine.Overdue+engine.Period, "one/j@1", "one/j@3", "one/other@1")
				close(answer)
				require.ErrorIs(b, <-fenced, claim.ErrLost)
				require.ErrorIs(b, <-fenced, claim.ErrLost)
			})
		})
	}
}

func TestAHintOfAHeldJobIsDone(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start("one", &kind{run: untilStopped}, nil)
		b.add("j", phaseNew)
		b.after(time.Second, "one/j@1")
		two := b.start("two", &kind{}, nil)
		require.Equal(b, messaging.Done(), two.engine.Handle(b.Context(), &workv1.Hint{Kind: "ConfigMap", Namespace: namespace, Name: "j", Uid: "j-uid"}))
		var held *claim.HeldError
		require.ErrorAs(b, two.engine.Run(b.Context(), "j", "j-uid"), &held)
		require.Equal(b, "one", held.Holder)
	})
}

// events records the events of an engine.
type events struct{ *bed }

// Eventf implements engine.Events.
func (e events) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	o, ok := about.(*job)
	require.True(e, ok)
	e.note(fmt.Sprintf("%s %s/%s %s: %s", reason, o.Namespace, o.Name, o.UID, fmt.Sprintf(note, args...)))
}

// A job whose holder died has none until a place is free: without an event it would seem to hang.
func TestATakeoverThatWaitsForAPlaceIsReported(t *testing.T) {
	inBubble(t, func(b *bed) {
		dying := b.start("one", &kind{run: untilStopped}, func(c *engine.Config[*job]) { c.Concurrency = 3 })
		for _, name := range []string{"a", "b", "c"} {
			b.add(name, phaseNew)
		}
		b.pass(time.Second)
		finishing := make(chan struct{})
		b.start("two", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			select {
			case <-finishing:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return finish(ctx, h)
		}}, func(c *engine.Config[*job]) { c.Concurrency, c.Events = 1, events{b} })
		b.add("x", phaseNew)
		b.pass(time.Second)
		require.Len(b, b.noted(), 4, "%v", b.noted())
		dying.kill()
		b.pass(timeout + 4*engine.Period)
		said := func(name string) string {
			return "Waiting velero/" + name + " " + name + "-uid: waits for a place in tester: it works on 1 jobs, which is as many as it may"
		}
		require.ElementsMatch(b, []string{said("a"), said("b"), said("c")}, b.noted()[4:], "each once")
		for _, name := range []string{"a", "b", "c"} {
			require.Equal(b, 1, strings.Count(b.log.String(), `msg="job waits" replica=two kind=ConfigMap name=`+name+" "))
		}
		close(finishing)
		b.pass(engine.Overdue)
		for _, name := range []string{"a", "b", "c", "x"} {
			require.Equal(b, phaseDone, phase(b.get(name)))
		}
		b.add("y", phaseRunning)
		b.pass(time.Second)
		require.Len(b, b.noted(), 4+3+4, "what gets a place at once is not reported")
	})
}
