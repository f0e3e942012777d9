package engine_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func TestAHintBeginsAJobOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start("one", &kind{}, nil)
		b.start("two", &kind{}, nil)
		b.add("j", phaseNew)
		b.pass(time.Second)
		require.Len(b, b.noted(), 1)
		require.Equal(b, phaseDone, phase(b.get("j")))
		require.Equal(b, int64(1), b.claim("j").Epoch)
		require.NotEmpty(b, b.claim("j").Holder, "a job that ended keeps its claim")
		b.pass(engine.Overdue)
		require.Len(b, b.noted(), 1)
	})
}

func TestAJobIsFoundWithoutMessages(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start("one", &kind{}, nil)
		b.bus.Swallow(true)
		b.add("swallowed", phaseNew)
		b.add("released", phaseRunning)
		b.add("queued", phaseQueued)
		b.after(time.Second, "one/released@1")
		b.after(engine.Overdue-2*time.Second, "one/released@1")
		b.after(2*time.Second, "one/released@1", "one/swallowed@1")
		b.bus.Down(true)
		b.add("refused", phaseNew)
		b.after(time.Second, "one/released@1", "one/swallowed@1", "one/refused@1")
	})
}

func TestAJobThatWaitsIsLookedAtAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		var admitted atomic.Bool
		b.start("one", &kind{admit: func(*job) (engine.Decision[*job], error) {
			if !admitted.Load() {
				return engine.NotNow[*job]("not admitted"), nil
			}
			return engine.Claim[*job](&kind{bed: b, replica: "one"}), nil
		}}, nil)
		b.add("j", phaseNew)
		b.after(time.Second)
		require.Equal(b, phaseNew, phase(b.get("j")), "nothing is written")
		admitted.Store(true)
		b.after(engine.Period, "one/j@1")
	})
}

func TestADeadHoldersJobsAreTakenOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		var lost error
		one := b.start("one", &kind{run: func(ctx context.Context, _ *engine.Held[*job]) error {
			<-ctx.Done()
			lost = context.Cause(ctx)
			return lost
		}}, nil)
		b.add("j", phaseNew)
		b.after(time.Second, "one/j@1")
		b.start("two", &kind{}, nil)
		b.bus.Down(true)
		b.after(4*timeout, "one/j@1")
		one.kill()
		b.after(timeout+time.Second, "one/j@1", "two/j@2")
		require.Equal(b, phaseDone, phase(b.get("j")))
		require.NoError(b, lost, "what is dead sees nothing")
	})
}

// A claim may be taken from a holder by hand; its job ends without a trace.
func TestAHolderStopsOnceItsClaimIsAnothers(t *testing.T) {
	inBubble(t, func(b *bed) {
		var lost error
		b.start("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			<-ctx.Done()
			lost = context.Cause(ctx)
			_, err := h.Finish(context.WithoutCancel(ctx), setPhase(phaseDone))
			assert.ErrorIs(b, err, claim.ErrLost)
			return lost
		}}, nil)
		b.add("j", phaseNew)
		b.after(time.Second, "one/j@1")
		b.edit("j", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Holder: "other", Epoch: 7})) })
		b.after(3*time.Second, "one/j@1")
		require.ErrorIs(b, lost, claim.ErrLost)
		require.Equal(b, claim.Claim{Holder: "other", Epoch: 7}, b.claim("j"))
		require.Equal(b, phaseRunning, phase(b.get("j")))
	})
}

func TestOtherPeoplesHintsBecomeDeadLetters(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.start("one", &kind{}, nil)
		b.add("j", phaseNew)
		b.edit("j", func(o *job) { o.Data["phase"] = phaseQueued })
		for _, h := range []*workv1.Hint{
			{Kind: "ConfigMap", Namespace: "another", Name: "j", Uid: "j-uid"}, {Kind: "Secret", Namespace: namespace, Name: "j", Uid: "j-uid"},
		} {
			o := one.engine.Handle(b.Context(), h)
			require.False(b, o.Retries())
			require.NotEqual(b, messaging.Done(), o)
		}
		require.Empty(b, b.noted())
	})
}

func TestAHintForAnotherObjectOfTheNameIsDone(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.start("one", &kind{}, nil)
		b.add("j", phaseQueued)
		for _, h := range []*workv1.Hint{
			{Kind: "ConfigMap", Namespace: namespace, Name: "j", Uid: "replaced"}, {Kind: "ConfigMap", Namespace: namespace, Name: "gone", Uid: "u"},
		} {
			require.Equal(b, messaging.Done(), one.engine.Handle(b.Context(), h))
		}
		require.Empty(b, b.noted())
		require.Empty(b, b.get("j").Annotations)
	})
}

// A Secret that a kind reads for its decision is missing: that does not mean that the job is gone.
func TestAnObjectThatIsMissingElsewhereIsNoVerdict(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.start("one", &kind{admit: cause(notFound("secret"))}, nil)
		b.add("j", phaseQueued)
		require.ErrorContains(b, one.engine.Run(b.Context(), "j", "j-uid"), "secret")
	})
}

func TestWhatIsDeletedIsFinalizedAndNotBegun(t *testing.T) {
	inBubble(t, func(b *bed) {
		var free []bool
		k := &kind{run: untilStopped, finalize: func(o *job, isFree func() bool) (time.Duration, error) {
			if o.DeletionTimestamp == nil {
				return 0, nil
			}
			free = append(free, isFree())
			if len(free) == 2 {
				return 0, errors.New("not now")
			}
			return time.Second, nil
		}}
		one := b.start("one", k, nil)
		b.add("j", phaseNew)
		b.after(time.Second, "one/j@1")
		b.edit("j", func(o *job) { o.Finalizers = []string{"holdfast.io/test"} })
		require.NoError(b, b.api.Delete(b.Context(), &job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "j"}}))
		b.after(2500*time.Millisecond, "one/j@1")
		require.Equal(b, []bool{false, false, false}, free)
		b.start("two", &kind{}, nil)
		one.stop()
		b.after(engine.Overdue, "one/j@1")
		require.Empty(b, b.claim("j").Holder, "released, and never taken again")
	})
}

// Files of a job may be removed only when it is certain that no process writes them.
func TestFreeIsOnlyWhatIsCertainlyFree(t *testing.T) {
	inBubble(t, func(b *bed) {
		var mu sync.Mutex
		seen := map[string]bool{}
		copied := func() map[string]bool {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(seen)
		}
		b.add("held", phaseDone)
		b.edit("held", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Holder: "stranger", Epoch: 1})) })
		b.add("released", phaseDone)
		b.edit("released", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Epoch: 1})) })
		b.add("unreadable", phaseDone)
		b.edit("unreadable", func(o *job) { o.Annotations = map[string]string{holdfast.AnnotationClaim: "{"} })
		b.start("one", &kind{finalize: func(o *job, free func() bool) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[o.Name] = free()
			return time.Second, nil
		}}, nil)
		b.after(timeout / 2)
		require.Equal(b, map[string]bool{"held": false, "released": true, "unreadable": true}, copied())
		b.after(timeout)
		require.True(b, copied()["held"], "its holder has no Lease")
	})
}

func TestAKindEndsAJobThatNobodyMayTake(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start("one", &kind{}, nil)
		b.add("j", phaseNew)
		b.edit("j", func(o *job) { o.Annotations = map[string]string{holdfast.AnnotationClaim: "{"} })
		b.after(time.Second, "j ended: annotation holdfast.io/claim: unexpected end of JSON input")
		require.Equal(b, phaseFailed, phase(b.get("j")))
	})
}

// Before its own Lease exists an instance watches no other: it cannot detect that a holder is
// alive.
func TestAnInstanceWithoutALeaseEndsNoJob(t *testing.T) {
	inBubble(t, func(b *bed) {
		k := &kind{admit: func(*job) (engine.Decision[*job], error) { return engine.End[*job](setPhase(phaseFailed), nil), nil }}
		one := b.start("one", k, func(c *engine.Config[*job]) {
			c.Instance = claim.NewInstance(claim.Config{Reader: c.Reader, Client: c.Client, Namespace: namespace, Name: "late", Clock: c.Clock, Log: c.Log})
		})
		b.add("j", phaseRunning)
		b.edit("j", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Holder: "other", Epoch: 7})) })
		require.ErrorContains(b, one.engine.Run(b.Context(), "j", "j-uid"), "no lease yet")
		require.Equal(b, phaseRunning, phase(b.get("j")))
	})
}
