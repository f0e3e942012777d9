package claim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const (
	idle     = idleTimeouts * timeout
	idleBeat = idle / idleLooks
)

// newIdleInstance is an instance that nothing keeps awake.
func (b *bed) newIdleInstance(name string) *Instance {
	i := b.newInstance(name)
	i.cfg.Busy = nil
	return i
}

// runInstances lets time go by as Run does: each instance beats when that is due.
func (b *bed) runInstances(t *testing.T, d time.Duration, alive ...*Instance) {
	t.Helper()
	for range d / beat {
		b.clock.Step(beat)
		b.beatDue(t, alive...)
	}
}

func (b *bed) beatDue(t *testing.T, alive ...*Instance) {
	t.Helper()
	for _, i := range alive {
		if i.isBeatDue() {
			i.runBeat(t.Context())
		}
	}
}

func (b *bed) readLease(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, lease))
	return lease
}

func (b *bed) requireDeclared(t *testing.T, name string, want time.Duration) {
	t.Helper()
	require.EqualValues(t, want/time.Second, *b.readLease(t, name).Spec.LeaseDurationSeconds)
}

// createClaimedJob writes a claimed job, as the runner does.
func (b *bed) createClaimedJob(t *testing.T, i *Instance) *corev1.ConfigMap {
	t.Helper()
	obj := newJob()
	acquireClaim(t, i, obj)
	require.NoError(t, b.client.Create(t.Context(), obj))
	return obj
}

func countRequests(b *bed) (requests *int) {
	requests = new(int)
	b.client = interceptor.NewClient(b.client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the bed's own
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			*requests++
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			*requests++
			return c.Patch(ctx, obj, p, opts...)
		},
	})
	return requests
}

func TestAnIdleInstanceMakesFewRequests(t *testing.T) {
	b := newBed()
	requests := countRequests(b)
	one := b.newIdleInstance("one")
	b.runInstances(t, beat, one)
	require.True(t, one.Ready())
	b.requireDeclared(t, "one", idle)
	before := *requests
	b.runInstances(t, 10*time.Minute, one)
	require.LessOrEqual(t, *requests-before, 2*10, "a write and a read a minute")
	require.True(t, one.certainty.isFresh(b.clock.Now()))
}

// The Lease declares the timeout before the claim is there to be seen.
func TestTheLeaseIsRewrittenBeforeAClaim(t *testing.T) {
	b := newBed()
	one := b.newIdleInstance("one")
	b.runInstances(t, timeout, one)
	b.requireDeclared(t, "one", idle)
	obj := newJob()
	_, err := one.Acquire(t.Context(), obj)
	require.NoError(t, err)
	b.requireDeclared(t, "one", timeout)
	b.runInstances(t, gracePeriod-beat, one)
	b.requireDeclared(t, "one", timeout)
	b.runInstances(t, 2*beat, one)
	b.requireDeclared(t, "one", idle)
	require.ErrorContains(t, one.refusedWake(t), "injected", "no claim without the write")
}

// refusedWake acquires while writes are refused.
func (i *Instance) refusedWake(t *testing.T) error {
	t.Helper()
	up := i.cfg.Client
	defer func() { i.cfg.Client = up }()
	i.cfg.Client = refusingClient(up)
	_, err := i.Acquire(t.Context(), newJob())
	return err
}

func refusingClient(c client.Client) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the bed's own
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("injected")
		},
	})
}

// An instance stays awake while it holds a claim, however long, and for a while after it.
func TestAHolderStaysAwake(t *testing.T) {
	b := newBed()
	one := b.newIdleInstance("one")
	b.runInstances(t, beat, one)
	obj := b.createClaimedJob(t, one)
	_, release := one.Guard(t.Context(), obj, nil)
	b.runInstances(t, 5*gracePeriod, one)
	b.requireDeclared(t, "one", timeout)
	requireReads(t, b, 0, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
	release()
	b.runInstances(t, gracePeriod-beat, one)
	b.requireDeclared(t, "one", timeout)
	b.runInstances(t, 2*beat, one)
	b.requireDeclared(t, "one", idle)
}

// An idle instance that takes a claim and dies at once is replaced the timeout later, by one that
// was idle as well until it saw the claim.
func TestATakeoverFromAnIdleStartTakesTheTimeout(t *testing.T) {
	b := newBed()
	one, two := b.newIdleInstance("one"), b.newIdleInstance("two")
	b.runInstances(t, 10*time.Minute, one, two)
	obj := b.createClaimedJob(t, one)
	requireHeld(t, two, obj, "one")
	require.Len(t, two.woken, 1, "the question begins a beat at once")
	two.runBeat(t.Context())
	asks := func() { require.Error(t, two.Held(obj)) }
	for range timeout / beat {
		asks()
		b.runInstances(t, beat, two)
	}
	require.Equal(t, "one", <-two.Expired())
	stealClaim(t, b, two, obj)
	require.ErrorIs(t, one.Confirm(t.Context(), obj), ErrLost)
}

// Successors go by what a Lease declares: one that sleeps for minutes between two renewals is not
// dead, whatever the successor's own timeout.
func TestTheDeclaredDurationCounts(t *testing.T) {
	b := newBed()
	one, two := b.newIdleInstance("one"), b.newInstance("two")
	b.runInstances(t, beat, one, two)
	obj := newJob()
	require.NoError(t, Set(obj, Claim{Owner: "one", Address: "one:7442", Epoch: 1}))
	b.runInstances(t, idle-beat, two)
	requireHeld(t, two, obj, "one")
	require.Empty(t, two.Expired())
	b.runInstances(t, 2*beat, two)
	require.Equal(t, "one", <-two.Expired())
}

// An idle instance whose Lease was deleted writes it at its next renewal, or before its next claim;
// that it is absent does not end it earlier.
func TestADeletedLeaseOfAnIdleInstance(t *testing.T) {
	b := newBed()
	one, two := b.newIdleInstance("one"), b.newInstance("two")
	b.runInstances(t, 2*beat, one, two)
	require.NoError(t, b.client.Delete(t.Context(), b.readLease(t, "one")))
	b.runInstances(t, 2*timeout-2*beat, two)
	require.Empty(t, two.Expired())
	obj := b.createClaimedJob(t, one)
	requireHeld(t, two, obj, "one")
	requireReads(t, b, 0, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
	b.requireDeclared(t, "one", timeout)
}

// The answer to the short declaration was lost, and the instance sleeps on: others may have found it
// dead since. What it claims then is not certain.
func TestALostAnswerToAShortDeclarationCounts(t *testing.T) {
	b := newBed()
	one, two := b.newIdleInstance("one"), b.newInstance("two")
	b.runInstances(t, beat, one, two)
	up := one.cfg.Client
	one.cfg.Client = interceptor.NewClient(up.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the bed's own
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return errors.Join(c.Patch(ctx, obj, p, opts...), errors.New("lost"))
		},
	})
	_, err := one.Acquire(t.Context(), newJob())
	require.ErrorContains(t, err, "lost")
	one.cfg.Client = up
	b.runInstances(t, timeout+beat, two)
	require.Equal(t, "one", <-two.Expired(), "it saw the short one")
	obj := b.createClaimedJob(t, one)
	late := obj.DeepCopy()
	acquireClaim(t, two, late) // by an answer from before the renewal
	requireReads(t, b, 1, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
	require.NoError(t, b.client.Update(t.Context(), late))
	require.ErrorIs(t, one.Confirm(t.Context(), obj), ErrLost)
}

// A write whose answer was lost cannot replace a later one.
func TestALateWriteOfTheLeaseFails(t *testing.T) {
	b := newBed()
	one := b.newIdleInstance("one")
	b.runInstances(t, beat, one)
	up := one.cfg.Client
	var late func() error
	one.cfg.Client = interceptor.NewClient(up.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the bed's own
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			sent := obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy
			late = func() error { return c.Patch(ctx, sent, p, opts...) }
			return errors.New("lost")
		},
	})
	_, err := one.Acquire(t.Context(), newJob())
	require.ErrorContains(t, err, "lost")
	one.cfg.Client = up
	b.clock.Step(gracePeriod)
	one.runBeat(t.Context())
	b.requireDeclared(t, "one", idle)
	require.Error(t, late())
	b.requireDeclared(t, "one", idle)
}

// An idle instance that was cut off for longer than it declared had a gap.
func TestAnIdleInstanceHasGapsToo(t *testing.T) {
	for name, tt := range map[string]struct {
		away  time.Duration
		reads int64
	}{"within what it declares": {idle / 2, 0}, "longer": {idle, 1}} {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			one := b.newIdleInstance("one")
			b.runInstances(t, beat, one)
			b.clock.Step(tt.away)
			b.beatDue(t, one)
			obj := b.createClaimedJob(t, one)
			requireReads(t, b, tt.reads, func() { require.NoError(t, one.Confirm(t.Context(), obj)) })
		})
	}
}

// A failed renewal of an idle instance is tried again at the next beat, and what others may have
// seen of a short declaration is replaced at once.
func TestAnIdleInstanceTriesAgainSoon(t *testing.T) {
	b := newBed()
	one := b.newIdleInstance("one")
	b.runInstances(t, beat, one)
	up := one.cfg.Client
	one.cfg.Client = refusingClient(up)
	b.runInstances(t, idleBeat, one)
	one.cfg.Client = up
	b.runInstances(t, beat, one)
	require.Equal(t, b.clock.Now(), one.certainty.confirmed.begin)

	require.Error(t, one.refusedWake(t))
	b.clock.Step(gracePeriod)
	require.True(t, one.isBeatDue())
}

// What keeps an instance awake beside claims.
func TestABusyInstanceIsAwake(t *testing.T) {
	b := newBed()
	one := b.newIdleInstance("one")
	busy := false
	one.cfg.Busy = func() bool { return busy }
	b.runInstances(t, beat, one)
	b.requireDeclared(t, "one", idle)
	busy = true
	b.runInstances(t, beat, one)
	b.requireDeclared(t, "one", timeout)
	busy = false
	b.runInstances(t, beat, one)
	b.requireDeclared(t, "one", idle)
}

// Who died idle leaves a Lease, which others remove although they look seldom.
func TestIdleInstancesRemoveOldLeases(t *testing.T) {
	b := newBed()
	one, two := b.newIdleInstance("one"), b.newIdleInstance("two")
	b.runInstances(t, beat, one, two)
	b.runInstances(t, 2*idle-beat, two)
	b.readLease(t, "one")
	b.runInstances(t, 2*idleBeat, two)
	require.Error(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "one"}, &coordinationv1.Lease{}))
	b.readLease(t, "two")
}
