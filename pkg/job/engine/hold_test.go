package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

func TestAStoppedProcessGivesItsJobTimeAndThenAway(t *testing.T) {
	inBubble(t, func(b *bed) {
		var told, ended time.Time
		var why error
		one := b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			<-h.Stopping().Done()
			told = time.Now()
			<-ctx.Done()
			ended, why = time.Now(), context.Cause(ctx)
			return why
		}}, nil)
		b.bus.Down(true)
		b.createJob("j", phaseRunning)
		b.requireRunsAfter(time.Second, "one/j@1")
		b.startReplica("two", &kind{}, nil)
		one.stop()
		require.Equal(b, grace, ended.Sub(told))
		require.ErrorIs(b, why, engine.ErrStopped)
		b.requireRunsAfter(time.Second, "one/j@1", "two/j@2")
	})
}

func TestAJobThatEndsInItsGracePeriodIsNotReleased(t *testing.T) {
	inBubble(t, func(b *bed) {
		one := b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			<-h.Stopping().Done()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(grace / 2):
			}
			return finishJob(ctx, h)
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		one.stop()
		require.Equal(b, phaseDone, jobPhase(b.getJob("j")))
		require.Equal(b, "one", b.readClaim("j").Owner)
	})
}

func TestARequestToCancelReachesTheHolder(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			working, release := engine.Join(ctx, h.Cancelling())
			defer release()
			<-working.Done()
			assert.NoError(b, ctx.Err())
			var asked *mark.CancelError
			assert.ErrorAs(b, context.Cause(working), &asked)
			assert.Equal(b, asked, h.Cancelled())
			assert.ErrorAs(b, h.BeginCommit(ctx, nil), &asked, "it comes too late")
			_, err := h.Finish(ctx, setPhase(phaseFailed))
			return err
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		ask := func(o *job) { require.NoError(b, mark.WriteCancelRequest(o, mark.CancelRequest{By: "somebody"})) }
		b.editJob("j", ask)
		b.requireRunsAfter(3*time.Second, "one/j@1")
		require.Equal(b, phaseFailed, jobPhase(b.getJob("j")))
		b.createJob("asked before", phaseRunning)
		b.editJob("asked before", ask)
		b.requireRunsAfter(time.Second, "one/j@1", "one/asked before@1")
		require.Equal(b, phaseFailed, jobPhase(b.getJob("asked before")))
	})
}

func TestAfterTheMarkOfTheCommitNobodyCancels(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			refusal := errors.New("is being deleted")
			assert.ErrorIs(b, h.BeginCommit(ctx, func(*job) error { return refusal }), refusal)
			assert.NoError(b, h.BeginCommit(ctx, nil))
			b.editJob("j", func(o *job) { o.Annotations[holdfast.AnnotationCancel] = "true" })
			time.Sleep(5 * time.Second)
			assert.Nil(b, h.Cancelled())
			return finishJob(ctx, h)
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(6*time.Second, "one/j@1")
		require.Equal(b, phaseDone, jobPhase(b.getJob("j")))
		require.False(b, mark.IsCommitting(b.getJob("j")), "the phase says the rest")
	})
}

// A job that fails is released, which its own process observes at once.
func TestAJobThatFailsRestsBeforeItIsBegunAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.bus.Down(true)
		b.startReplica("one", &kind{run: func(context.Context, *engine.Held[*job]) error { return errors.New("the API is away") }}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(9*time.Second, "one/j@1")
		b.requireRunsAfter(11*time.Second, "one/j@1", "one/j@2")
		require.Empty(b, b.readClaim("j").Owner)
	})
}

func TestAReleasedJobSaysWhy(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			return h.Release(ctx, setPhase(phaseQueued))
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(engine.Overdue, "one/j@1")
		require.Equal(b, phaseQueued, jobPhase(b.getJob("j")))
		require.Equal(b, claim.Claim{Epoch: 1}, b.readClaim("j"))
	})
}

func TestNothingIsWrittenOverAnEnd(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			b.editJob("j", func(o *job) { _ = setPhase(phaseFailed)(o) })
			_, err := h.Finish(ctx, setPhase(phaseDone))
			assert.ErrorIs(b, err, engine.ErrEnded)
			assert.NoError(b, h.Release(ctx, setPhase(phaseQueued)))
			return err
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		require.Equal(b, phaseFailed, jobPhase(b.getJob("j")))
		require.Equal(b, "one", b.readClaim("j").Owner, "a job that ended keeps its claim")
	})
}

// The answer to the write of the end is lost: the next attempt finds its own end.
func TestAnEndWhoseAnswerWasLostIsOurs(t *testing.T) {
	inBubble(t, func(b *bed) {
		lost := 0
		b.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, o, p, opts...)
			if j, ok := o.(*job); ok && jobPhase(j) == phaseDone {
				lost++
				return apierrors.NewTimeoutError("the answer", 1)
			}
			return err
		}
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			final, err := h.Finish(ctx, setPhase(phaseDone))
			assert.NoError(b, err)
			assert.Equal(b, phaseDone, jobPhase(final))
			b.noteRun("settled")
			return nil
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(3*time.Second, "one/j@1", "settled")
		require.Equal(b, 1, lost)
	})
}

// A write of the end does not arrive, and another writer ends the job before the next attempt: that
// end is not this process's to count and announce.
func TestAnEndThatDidNotArriveIsNotOurs(t *testing.T) {
	for name, refuse := range map[string]func(b *bed, sent int) error{
		"it is lost on its way": func(b *bed, _ int) error {
			b.editJob("j", func(o *job) { _ = setPhase(phaseFailed)(o) })
			return apierrors.NewTimeoutError("the request", 1)
		},
		"it is lost after a conflict": func(b *bed, sent int) error {
			if sent == 1 {
				return apierrors.NewConflict(schema.GroupResource{}, "j", errors.New("met another write"))
			}
			b.editJob("j", func(o *job) { _ = setPhase(phaseFailed)(o) })
			return apierrors.NewServiceUnavailable("away")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				sent := 0
				b.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if j, ok := o.(*job); ok && jobPhase(j) == phaseDone {
						sent++
						return refuse(b, sent)
					}
					return c.Patch(ctx, o, p, opts...)
				}
				b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
					final, err := h.Finish(ctx, setPhase(phaseDone))
					assert.ErrorIs(b, err, engine.ErrEnded)
					assert.Equal(b, phaseFailed, jobPhase(final))
					b.noteRun("told")
					return nil
				}}, nil)
				b.createJob("j", phaseNew)
				b.requireRunsAfter(3*time.Second, "one/j@1", "told")
			})
		})
	}
}

// The first write of the end arrives after the second one's read. The content of an end may differ
// between attempts, by its time at least.
func TestAnEndThatArrivesLateIsOurs(t *testing.T) {
	inBubble(t, func(b *bed) {
		var late *job
		b.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			j, ok := o.(*job)
			switch {
			case !ok || jobPhase(j) != phaseDone:
			case late == nil:
				late = j.DeepCopy()
				return apierrors.NewTimeoutError("the answer", 1)
			default:
				b.editJob("j", func(o *job) { o.Data = late.Data })
			}
			return c.Patch(ctx, o, p, opts...)
		}
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			_, err := h.Finish(ctx, func(o *job) error {
				o.Data = map[string]string{"phase": phaseDone, "ended": time.Now().String()}
				return nil
			})
			assert.NoError(b, err)
			b.noteRun("settled")
			return nil
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(5*time.Second, "one/j@1", "settled")
		require.Equal(b, late.Data, b.getJob("j").Data)
	})
}

// Another client writes between the decision and the claim: the decision is repeated with the new
// version.
func TestADecisionIsAboutTheVersionThatIsReplaced(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob("j", phaseNew)
		met := false
		b.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*job); ok && !met {
				met = true
				b.editJob("j", func(o *job) { _ = setPhase(phaseQueued)(o) })
				return apierrors.NewConflict(schema.GroupResource{}, "j", errors.New("met another write"))
			}
			return c.Patch(ctx, o, p, opts...)
		}
		k := &kind{}
		k.admit = func(o *job) (engine.Decision[*job], error) {
			b.noteRun("asked in phase " + jobPhase(o))
			if jobPhase(o) == phaseQueued {
				return engine.NotNow[*job]("queued"), nil
			}
			return engine.Claim[*job](k), nil
		}
		b.startReplica("one", k, nil)
		b.requireRunsAfter(time.Second, "asked in phase ", "asked in phase Queued")
		require.Empty(b, b.getJob("j").Annotations)
	})
}

// failReleases makes the writes that give up the claim of a job fail: so many, or all below 0.
// lose lets them arrive, and loses their answers.
func (b *bed) failReleases(times int, lose bool) {
	b.faults.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		j, ok := o.(*job)
		if !ok {
			return c.Patch(ctx, o, p, opts...)
		}
		if held, _, err := claim.Parse(j); err != nil || held.Owner != "" || times == 0 {
			return c.Patch(ctx, o, p, opts...)
		}
		times--
		if lose {
			assert.NoError(b, c.Patch(ctx, o, p, opts...))
		}
		return apierrors.NewServiceUnavailable("away")
	}
}

// One that stops must not leave its jobs to the claim timeout because one call failed.
func TestAReleaseIsTriedAgain(t *testing.T) {
	for name, lose := range map[string]bool{"the write fails": false, "the answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.failReleases(2, lose)
				one := b.startReplica("one", &kind{run: untilStopped}, nil)
				b.createJob("j", phaseNew)
				b.requireRunsAfter(time.Second, "one/j@1")
				one.stop()
				require.Equal(b, claim.Claim{Epoch: 1}, b.readClaim("j"))
				require.Contains(b, b.log.String(), "Released job")
				require.NotContains(b, b.log.String(), "to release")
			})
		})
	}
}

func TestAReleaseThatWasNotWrittenIsNotLoggedAsOne(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.failReleases(-1, false)
		one := b.startReplica("one", &kind{run: untilStopped}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		stopping := time.Now()
		one.stop()
		require.LessOrEqual(b, time.Since(stopping), grace+6*time.Second, "bounded")
		require.Equal(b, "one", b.readClaim("j").Owner)
		require.Contains(b, b.log.String(), `level=WARN msg="Failed to release claim; other instances wait`)
		require.NotContains(b, b.log.String(), "Released job")
	})
}

// A job that ended and reports an error nevertheless keeps its claim.
func TestTheClaimOfAJobThatEndedIsNotLoggedAsReleased(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			return errors.Join(finishJob(ctx, h), errors.New("after the end"))
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		require.Equal(b, "one", b.readClaim("j").Owner)
		require.NotContains(b, b.log.String(), "Released job")
	})
}

// A write that is left of an earlier holding by the same process does not affect the later one.
func TestAHoldingThatEndedIsNotTheNextOne(t *testing.T) {
	inBubble(t, func(b *bed) {
		var first, second *engine.Held[*job]
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			if first != nil {
				second = h
				return untilStopped(ctx, h)
			}
			first = h
			assert.NoError(b, h.Confirm(ctx))
			assert.NoError(b, h.Release(ctx, nil))
			assert.ErrorIs(b, h.Confirm(ctx), claim.ErrLost, "any instance may have the claim now")
			return nil
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1", "one/j@2")
		require.ErrorIs(b, first.Confirm(b.Context()), claim.ErrLost)
		require.ErrorIs(b, first.Release(b.Context(), nil), claim.ErrLost)
		_, err := first.Finish(b.Context(), setPhase(phaseFailed))
		require.ErrorIs(b, err, claim.ErrLost)
		first.LoseClaim(errors.New("the former"))
		require.NoError(b, second.Cancelling().Err())
		require.NoError(b, second.Confirm(b.Context()))
		require.Equal(b, claim.Claim{Owner: "one", Address: "one:1", Epoch: 2}, b.readClaim("j"))
		require.Equal(b, phaseRunning, jobPhase(b.getJob("j")))
	})
}

// A goroutine that outlives the work of a job must not find its claim certain.
func TestAfterTheWorkNothingIsConfirmed(t *testing.T) {
	inBubble(t, func(b *bed) {
		var ended *engine.Held[*job]
		b.startReplica("one", &kind{run: func(ctx context.Context, h *engine.Held[*job]) error {
			ended = h
			return finishJob(ctx, h)
		}}, nil)
		b.createJob("j", phaseNew)
		b.requireRunsAfter(time.Second, "one/j@1")
		require.ErrorIs(b, ended.Confirm(b.Context()), claim.ErrLost)
	})
}
