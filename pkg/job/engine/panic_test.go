package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/engine"
)

// handler is a kind that ends what panics.
type handler struct{ *kind }

// AdmitPanicked implements engine.PanicHandler.
func (h *handler) AdmitPanicked(*job) engine.Decision[*job] {
	return engine.End(setPhase(phaseFailed), func(_ context.Context, o *job) { h.note("ended " + o.Name) })
}

// A kind that panics before the claim, or at the end of the job, would panic at every pass and for
// every message.
func TestAJobThatKeepsPanickingEnds(t *testing.T) {
	panics := func(b *bed) { b.note("panicked"); panic("a defect") }
	for name, defect := range map[string]func(b *bed, k *kind){
		"in the admission": func(b *bed, k *kind) {
			k.admit = func(*job) (engine.Decision[*job], error) { panics(b); return engine.Decision[*job]{}, nil }
		},
		"in what completes the claim": func(b *bed, k *kind) { k.claimed = func() { panics(b) } },
		"at the end of a job that panicked": func(_ *bed, k *kind) {
			k.run = func(context.Context, *engine.Held[*job]) error { panic("a defect") }
			k.panicked = func(context.Context, *engine.Held[*job], any) error { panic("a defect") }
		},
	} {
		for way, down := range map[string]bool{"hints": false, "looks": true} {
			t.Run(name+", by "+way, func(t *testing.T) {
				inBubble(t, func(b *bed) {
					b.tick = time.Second
					k := &kind{}
					defect(b, k)
					b.start("one", k, func(c *engine.Config[*job]) { c.Kind = &handler{k} })
					b.bus.Down(down)
					b.add("j", phaseNew)
					attempts := func() int {
						return strings.Count(fmt.Sprint(b.noted()), "panicked")
					}
					for i, within := range []int{9, 20, 50, 110, 200} { // pauses double from 10 s, passes are 15 s apart
						b.pass(time.Duration(within)*time.Second - time.Since(time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)))
						require.LessOrEqual(b, attempts(), i+1, "after %d s", within)
					}
					b.pass(3 * time.Minute)
					require.Equal(b, 5, attempts())
					require.Equal(b, phaseFailed, phase(b.get("j")))
					require.Equal(b, "ended j", b.noted()[len(b.noted())-1])
				})
			})
		}
	}
}

func TestAPanicThatRepeatsIsLoggedWithItsStackOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.tick = time.Second
		value := "a defect"
		b.bus.Down(true)
		b.start("one", &kind{admit: func(*job) (engine.Decision[*job], error) { panic(errors.New(value)) }}, nil)
		b.add("j", phaseNew)
		logged := func(text string) int { return strings.Count(b.log.String(), text) }
		b.pass(time.Minute)
		require.Equal(b, 3, logged("job panicked"))
		require.Equal(b, 1, logged("stack="))
		require.Equal(b, 1, logged("panics=3"))
		value = "another"
		b.pass(time.Minute)
		require.Equal(b, 2, logged("stack="), "that is news")
		b.pass(10 * time.Minute)
		require.Less(b, logged("job panicked"), 10)
		require.Equal(b, phaseNew, phase(b.get("j")), "a kind that ends nothing is asked again, ever more rarely")
	})
}
