package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
)

func panicking(context.Context, *engine.Held[*job]) error { panic("a defect") }

// The claim has the count: instances that follow one another share it.
func TestAJobIsGivenUpAfterThreePanics(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.startReplica("one", &kind{run: panicking}, nil)
		b.createJob("j", phaseQueued)
		for epoch := range int64(2) {
			require.ErrorIs(b, one.engine.Run(b.Context(), "j", "j-uid"), engine.ErrInternal)
			require.Equal(b, claim.Claim{Epoch: epoch + 1, Panics: int(epoch) + 1}, b.readClaim("j"))
		}
		one.stop()
		b.startReplica("two", &kind{run: panicking}, nil)
		b.requireRunsAfter(time.Minute, "one/j@1", "one/j@2", "two/j@3", "two/j@4 given up")
		require.Equal(b, phaseFailed, jobPhase(b.getJob("j")))
		require.Contains(b, b.log.String(), `msg="Job panicked"`)
		require.Contains(b, b.log.String(), "engine_test.panicking", "the stack")
	})
}

func TestAJobThatPanicsWhileItIsGivenUpEndsOnTheObject(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.tick = time.Second
		b.bus.Down(true)
		b.startReplica("one", &kind{run: panicking, givenUp: panicking}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(5*time.Minute, "one/j@1", "one/j@2", "one/j@3", "one/j@4 given up", "j ended: internal error")
		require.Equal(b, phaseFailed, jobPhase(b.getJob("j")))
	})
}

// A panic of another goroutine counts like one of Run's.
func TestProgressBetweenPanicsKeepsAJob(t *testing.T) {
	inBubble(t, func(b *bed) {
		k := &kind{run: func(_ context.Context, h *engine.Held[*job]) error {
			h.NoteProgress()
			var group panics.Group
			group.Go(func() error { panic("a defect") })
			return group.Wait()
		}}
		one := b.startReplica("one", k, nil)
		b.createJob("j", phaseQueued)
		for range 5 {
			require.ErrorIs(b, one.engine.Run(b.Context(), "j", "j-uid"), engine.ErrInternal)
			require.Equal(b, 1, b.readClaim("j").Panics)
		}
		k.run = nil
		require.NoError(b, one.engine.Run(b.Context(), "j", "j-uid"))
		require.Equal(b, phaseDone, jobPhase(b.getJob("j")))
	})
}

func TestOtherFailuresKeepTheCountOfPanics(t *testing.T) {
	inBubble(t, func(b *bed) {
		k := &kind{run: panicking}
		one := b.startReplica("one", k, nil)
		b.createJob("j", phaseQueued)
		require.Error(b, one.engine.Run(b.Context(), "j", "j-uid"))
		k.run = func(context.Context, *engine.Held[*job]) error { return errors.New("the API is away") }
		require.Error(b, one.engine.Run(b.Context(), "j", "j-uid"))
		require.Equal(b, claim.Claim{Epoch: 2, Panics: 1}, b.readClaim("j"))
	})
}

// A panic before the claim takes an epoch too: a kind would panic at every pass and for every
// message.
func TestPanicsBeforeTheClaimAreCounted(t *testing.T) {
	for name, defect := range map[string]func(k *kind){
		"in the admission": func(k *kind) {
			k.admit = func(*job) (engine.Decision[*job], error) { panic("a defect") }
		},
		"in what completes the claim": func(k *kind) { k.claimed = func() { panic("a defect") } },
	} {
		for way, down := range map[string]bool{"hints": false, "looks": true} {
			t.Run(name+", by "+way, func(t *testing.T) {
				inBubble(t, func(b *bed) {
					b.tick = time.Second
					k := &kind{}
					defect(k)
					one := b.startReplica("one", k, nil)
					b.bus.Down(down)
					b.createJob("j", phaseQueued)
					require.ErrorIs(b, one.engine.Run(b.Context(), "j", "j-uid"), engine.ErrInternal)
					require.False(b, one.engine.Active(b.getJob("j")))
					require.Equal(b, claim.Claim{Epoch: 1, Panics: 1}, b.readClaim("j"))
					b.editJob("j", func(o *job) { require.NoError(b, setPhase(phaseNew)(o)) })
					b.advanceClock(5 * time.Minute)
					require.Equal(b, phaseFailed, jobPhase(b.getJob("j")))
					require.LessOrEqual(b, strings.Count(b.log.String(), "Job panicked"), 4)
				})
			})
		}
	}
}
