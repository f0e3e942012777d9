package claim

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// newClaimedJob is a job that one holds, beside another instance.
func newClaimedJob(t *testing.T) (b *bed, one, two *Instance, obj *corev1.ConfigMap) {
	t.Helper()
	b = newBed()
	one, two = b.newInstance("one"), b.newInstance("two")
	b.advanceAlive(t, beat, one, two)
	obj = newJob()
	acquireClaim(t, one, obj)
	require.NoError(t, b.client.Create(t.Context(), obj))
	return b, one, two, obj
}

// stealClaim lets another instance write its claim into the stored object.
func stealClaim(t *testing.T, b *bed, successor *Instance, obj *corev1.ConfigMap) {
	t.Helper()
	stored := obj.DeepCopy()
	acquireClaim(t, successor, stored)
	require.NoError(t, b.client.Update(t.Context(), stored))
}

// requireReads checks how often the object was read for one Confirm.
func requireReads(t *testing.T, b *bed, want int64, confirm func()) {
	t.Helper()
	before := b.reads.Load()
	confirm()
	require.Equal(t, want, b.reads.Load()-before)
}

func TestConfirmIsFreeWhileTheLeaseIsRenewed(t *testing.T) {
	b, one, two, obj := newClaimedJob(t)
	b.advanceAlive(t, 3*timeout, one, two)
	b.away.Store(true)
	b.clock.Step(timeout - timeout/marginsPerTimeout - 1)
	requireReads(t, b, 0, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
}

// The process stood still past the timeout and another took over; its first act on waking is an
// effect. Neither waits for a tick, whether or not the Lease was renewed first.
func TestConfirmNoticesAPauseAtOnce(t *testing.T) {
	for name, wake := range map[string]func(*testing.T, *Instance){
		"the job moves first":        func(*testing.T, *Instance) {},
		"the lease is renewed first": func(t *testing.T, one *Instance) { t.Helper(); one.runBeat(t.Context()) },
		"the lease is renewed for long": func(t *testing.T, one *Instance) {
			t.Helper()
			for range 3 {
				one.runBeat(t.Context())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, one, two, obj := newClaimedJob(t)
			b.advanceAlive(t, timeout, two)
			stealClaim(t, b, two, obj)
			wake(t, one)
			require.ErrorIs(t, one.Confirm(t.Context(), obj), ErrLost)
		})
	}
}

// A claim that was kept over a gap is read at every Confirm from then on: a successor that found
// the holder dead may have been paused just before its write, for an unknown time.
func TestAfterAGapEveryConfirmReads(t *testing.T) {
	b, one, two, obj := newClaimedJob(t)
	b.advanceAlive(t, timeout, two)
	late := obj.DeepCopy()
	acquireClaim(t, two, late) // and stands still
	b.advanceAlive(t, 5*timeout, one)
	for range 2 {
		requireReads(t, b, 1, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
	}
	require.NoError(t, b.client.Update(t.Context(), late), "nobody wrote in between: the swap succeeds")
	require.ErrorIs(t, one.Confirm(t.Context(), obj), ErrLost)
}

// What is taken after a gap is free again once every answer from before is old.
func TestNewClaimsAreFreeAgainAfterAGap(t *testing.T) {
	b, one, _, _ := newClaimedJob(t)
	b.advanceAlive(t, 2*timeout)
	b.advanceAlive(t, beat, one)
	soon, later := newJob(), newJob()
	soon.Name, soon.UID, later.Name, later.UID = "soon", "uid-soon", "later", "uid-later"
	acquireClaim(t, one, soon)
	require.NoError(t, b.client.Create(t.Context(), soon))
	requireReads(t, b, 1, func() { require.NoError(t, one.Confirm(t.Context(), soon)) })
	b.advanceAlive(t, timeout, one)
	acquireClaim(t, one, later)
	require.NoError(t, b.client.Create(t.Context(), later))
	requireReads(t, b, 0, func() { require.NoError(t, one.Confirm(t.Context(), later)) })
	requireReads(t, b, 1, func() { require.NoError(t, one.Confirm(t.Context(), soon)) })
}

func TestConfirmWaitsForTheServer(t *testing.T) {
	b, one, _, obj := newClaimedJob(t)
	b.clock.Step(timeout)
	b.away.Store(true)
	done := make(chan error, 1)
	before := b.reads.Load()
	go func() { done <- one.Confirm(t.Context(), obj) }()
	require.Eventually(t, func() bool { b.clock.Step(confirmPause); return b.reads.Load() > before+3 }, time.Minute, time.Millisecond)
	require.Empty(t, done)
	b.away.Store(false)
	require.Eventually(t, func() bool { b.clock.Step(confirmPause); return len(done) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, <-done)
}

func TestConfirmEndsWithItsContext(t *testing.T) {
	b, one, _, obj := newClaimedJob(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	require.ErrorIs(t, one.Confirm(ctx, obj), gone, "even while the claim is certain")
	b.clock.Step(timeout)
	b.away.Store(true)
	ctx, cancel = context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- one.Confirm(ctx, obj) }()
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	cancel(gone)
	require.ErrorIs(t, <-done, gone)
}

func TestConfirmKnowsOnlyItsOwnClaims(t *testing.T) {
	b, one, two, obj := newClaimedJob(t)
	require.NoError(t, two.Confirm(t.Context(), obj), "whoever asks, the object decides")
	unclaimed := newJob()
	require.ErrorIs(t, one.Confirm(t.Context(), unclaimed), ErrLost)
	older := obj.DeepCopy()
	acquireClaim(t, one, obj)
	require.NoError(t, b.client.Update(t.Context(), obj))
	require.NoError(t, one.Confirm(t.Context(), obj))
	require.ErrorIs(t, one.Confirm(t.Context(), older), ErrLost, "an older epoch of its own")
	one.releaseLease(t.Context())
	requireReads(t, b, 1, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
}

// One process holds a job twice. Questions about what a cache still shows come in between.
func TestTwoHoldingsOfAJobAreTwoClaims(t *testing.T) {
	b, one, two, first := newClaimedJob(t)
	unclaimed := newJob()
	ask := func(obj *corev1.ConfigMap) { _, err := one.Acquire(t.Context(), obj); require.NoError(t, err) }
	ask(unclaimed)
	requireReads(t, b, 0, func() { require.NoError(t, one.Confirm(t.Context(), first)) })
	second := first.DeepCopy()
	require.NoError(t, Set(second, Claim{Epoch: 1}))
	acquireClaim(t, one, second)
	require.NoError(t, b.client.Update(t.Context(), second))
	guarded, stop := one.Guard(t.Context(), second, nil)
	defer stop()
	former, leave := one.Guard(t.Context(), first, nil)
	defer leave()
	for _, stale := range []*corev1.ConfigMap{unclaimed, first} {
		ask(stale)
		requireReads(t, b, 1, func() { require.ErrorIs(t, one.Confirm(t.Context(), first), ErrLost) })
		requireReads(t, b, 0, func() { require.NoError(t, one.Confirm(t.Context(), second)) })
	}
	require.Eventually(t, func() bool { b.clock.Step(guardPeriod); return former.Err() != nil }, time.Minute, time.Millisecond)
	b.advanceAlive(t, timeout, one, two)
	require.NoError(t, guarded.Err())
	require.ErrorIs(t, Check(second, Claim{Owner: "one", Epoch: 1}), ErrLost)
}

// Many jobs over a long life: memory stays bounded, and the newest is still free.
func TestRememberedClaimsAreBounded(t *testing.T) {
	b, one, _, obj := newClaimedJob(t)
	for n := range 3 * rememberedClaims {
		o := newJob()
		o.UID = types.UID(strconv.Itoa(n))
		acquireClaim(t, one, o)
	}
	require.LessOrEqual(t, len(one.certainty.acquired), rememberedClaims)
	requireReads(t, b, 1, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
	last := obj.DeepCopy()
	acquireClaim(t, one, last)
	requireReads(t, b, 0, func() { require.NoError(t, one.Confirm(t.Context(), last)) })
}

// A stopped and continued process: its first tick is late, and reads the object.
func TestGuardLooksAtOnceAfterAPause(t *testing.T) {
	b, one, _, obj := newClaimedJob(t)
	ctx, cancel := one.Guard(t.Context(), obj, nil)
	defer cancel()
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	require.NoError(t, Set(obj, Claim{Owner: "two", Epoch: 2}))
	require.NoError(t, b.client.Update(t.Context(), obj))
	b.clock.Step(10 * timeout) // one tick, late
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), ErrLost)
	require.Contains(t, b.log.String(), "Process was paused")
	require.Contains(t, b.log.String(), "late=4m58s")
}
