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
		b.startReplica("one", &kind{}, nil)
		b.startReplica("two", &kind{}, nil)
		b.createJob("j", phaseNew)
		b.advanceClock(time.Second)
		require.Len(b, b.notedRuns(), 1)
		require.Equal(b, phaseDone, jobPhase(b.getJob("j")))
		require.Equal(b, int64(1), b.readClaim("j").Epoch)
		require.NotEmpty(b, b.readClaim("j").Owner, "a job that ended keeps its claim")
		b.advanceClock(engine.Overdue)
		require.Len(b, b.notedRuns(), 1)
	})
}

func TestAJobIsFoundWithoutMessages(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{}, nil)
		b.bus.Swallow(true)
		b.createJob("swallowed", phaseNew)
		b.createJob("released", phaseRunning)
		b.createJob("queued", phaseQueued)
		b.requireRunsAfter(time.Second, "one/released@1")
		b.requireRunsAfter(engine.Overdue-2*time.Second, "one/released@1")
		b.requireRunsAfter(2*time.Second, "one/released@1", "one/swallowed@1")
		b.bus.Down(true)
		b.createJob("refused", phaseNew)
		b.requireRunsAfter(time.Second, "one/released@1", "one/swallowed@1", "one/refused@1")
	})
}

func TestAJobThatWaitsIsLookedAtAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		var admitted atomic.Bool
		b.startReplica("one", &kind{admit: func(*job) (engine.Decision[*job], error) {
			if !admitted.Load() {
				return engine.NotNow[*job]("not admitted"), nil
			}
			return engine.Claim[*job](&kind{bed: b, replica: "one"}), nil
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second)
		require.Equal(b, phaseNew, jobPhase(b.getJob("j")), "nothing is written")
		admitted.Store(true)
		b.requireRunsAfter(engine.Period, "one/j@1")
	})
}

func TestADeadHoldersJobsAreTakenOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		var lost error
		one := b.startReplica("one", &kind{run: func(ctx context.Context, _ *engine.Held[*job]) error {
			<-ctx.Done()
			lost = context.Cause(ctx)
			return lost
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		b.startReplica("two", &kind{}, nil)
		b.bus.Down(true)
		b.requireRunsAfter(4*timeout, "one/j@1")
		one.kill()
		b.requireRunsAfter(timeout+time.Second, "one/j@1", "two/j@2")
		require.Equal(b, phaseDone, jobPhase(b.getJob("j")))
		require.NoError(b, lost, "what is dead sees nothing")
	})
}

// A claim may be taken from a holder by hand; its job ends without a trace.
func TestAHolderStopsOnceItsClaimIsAnothers(t *testing.T) {
	inBubble(t, func(b *bed) {
		var lost error
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			<-ctx.Done()
			lost = context.Cause(ctx)
			_, err := h.Finish(context.WithoutCancel(ctx), setPhase(phaseDone))
			assert.ErrorIs(b, err, claim.ErrLost)
			return lost
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		b.editJob("j", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Owner: "other", Epoch: 7})) })
		b.requireRunsAfter(3*time.Second, "one/j@1")
		require.ErrorIs(b, lost, claim.ErrLost)
		require.Equal(b, claim.Claim{Owner: "other", Epoch: 7}, b.readClaim("j"))
		require.Equal(b, phaseRunning, jobPhase(b.getJob("j")))
	})
}

func TestOtherPeoplesHintsBecomeDeadLetters(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.startReplica("one", &kind{}, nil)
		b.createJob("j", phaseNew)
		b.editJob("j", func(o *job) { o.Data["phase"] = phaseQueued })
		for _, h := range []*workv1.Hint{
			{Kind: "ConfigMap", Namespace: "another", Name: "j", Uid: "j-uid"}, {Kind: "Secret", Namespace: namespace, Name: "j", Uid: "j-uid"},
		} {
			o := one.engine.Handle(b.Context(), h)
			require.False(b, o.Retries())
			require.NotEqual(b, messaging.Done(), o)
		}
		require.Empty(b, b.notedRuns())
	})
}

func TestAHintForAnotherObjectOfTheNameIsDone(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.startReplica("one", &kind{}, nil)
		b.createJob("j", phaseQueued)
		for _, h := range []*workv1.Hint{
			{Kind: "ConfigMap", Namespace: namespace, Name: "j", Uid: "replaced"}, {Kind: "ConfigMap", Namespace: namespace, Name: "gone", Uid: "u"},
		} {
			require.Equal(b, messaging.Done(), one.engine.Handle(b.Context(), h))
		}
		require.Empty(b, b.notedRuns())
		require.Empty(b, b.getJob("j").Annotations)
	})
}

// A Secret that a kind reads for its decision is missing: that does not mean that the job is gone.
func TestAnObjectThatIsMissingElsewhereIsNoVerdict(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.startReplica("one", &kind{admit: failDecision(notFound("secret"))}, nil)
		b.createJob("j", phaseQueued)
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
		one := b.startReplica("one", k, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		b.editJob("j", func(o *job) { o.Finalizers = []string{"holdfast.io/test"} })
		require.NoError(b, b.api.Delete(b.Context(), &job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "j"}}))
		b.requireRunsAfter(2500*time.Millisecond, "one/j@1")
		require.Equal(b, []bool{false, false, false}, free)
		b.startReplica("two", &kind{}, nil)
		one.stop()
		b.requireRunsAfter(engine.Overdue, "one/j@1")
		require.Empty(b, b.readClaim("j").Owner, "released, and never taken again")
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
		b.createJob("held", phaseDone)
		b.editJob("held", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Owner: "stranger", Epoch: 1})) })
		b.createJob("released", phaseDone)
		b.editJob("released", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Epoch: 1})) })
		b.createJob("unreadable", phaseDone)
		b.editJob("unreadable", func(o *job) { o.Annotations = map[string]string{holdfast.AnnotationClaim: "{"} })
		b.startReplica("one", &kind{finalize: func(o *job, free func() bool) (time.Duration, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[o.Name] = free()
			return time.Second, nil
		}}, nil)
		b.requireRunsAfter(timeout / 2)
		require.Equal(b, map[string]bool{"held": false, "released": true, "unreadable": true}, copied())
		b.requireRunsAfter(timeout)
		require.True(b, copied()["held"], "its holder has no Lease")
	})
}

func TestAKindEndsAJobThatNobodyMayTake(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{}, nil)
		b.createJob("j", phaseNew)
		b.editJob("j", func(o *job) { o.Annotations = map[string]string{holdfast.AnnotationClaim: "{"} })
		b.requireRunsAfter(time.Second, "j ended: annotation holdfast.io/claim: unexpected end of JSON input")
		require.Equal(b, phaseFailed, jobPhase(b.getJob("j")))
	})
}

// Before its own Lease exists an instance watches no other: it cannot detect that a holder is
// alive.
func TestAnInstanceWithoutALeaseEndsNoJob(t *testing.T) {
	inBubble(t, func(b *bed) {
		k := &kind{admit: func(*job) (engine.Decision[*job], error) { return engine.End[*job](setPhase(phaseFailed), nil), nil }}
		one := b.startReplica("one", k, func(c *engine.Config[*job]) {
			c.Instance = claim.NewInstance(claim.Config{Reader: c.Reader, Client: c.Client, Namespace: namespace, Name: "late", Clock: c.Clock, Log: c.Log})
		})
		b.createJob("j", phaseRunning)
		b.editJob("j", func(o *job) { require.NoError(b, claim.Set(o, claim.Claim{Owner: "other", Epoch: 7})) })
		require.ErrorContains(b, one.engine.Run(b.Context(), "j", "j-uid"), "no lease yet")
		require.Equal(b, phaseRunning, jobPhase(b.getJob("j")))
	})
}
