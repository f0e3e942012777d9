package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
