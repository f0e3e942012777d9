package claim

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "velero"
	timeout   = 30 * time.Second
	beat      = timeout / beatsPerTimeout
)

// bed is an API server that can be away, and a clock all instances share.
type bed struct {
	client client.Client
	clock  *clocktesting.FakeClock
	away   atomic.Bool
	reads  atomic.Int64 // of single objects, failing ones too
	log    buffer
}

// buffer collects what is logged.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newBed() *bed {
	b := &bed{clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0))}
	b.client = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if b.away.Load() {
				return errors.New("connection refused")
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			b.reads.Add(1)
			if b.away.Load() {
				return errors.New("connection refused")
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	return b
}

func (b *bed) newInstance(name string) *Instance {
	return NewInstance(Config{
		Reader: b.client, Client: b.client, Namespace: namespace, Name: name, Address: name + ":7442", Timeout: timeout,
		Busy: func() bool { return true }, Clock: b.clock, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
}

// advanceAlive lets time go by while the given instances live.
func (b *bed) advanceAlive(t *testing.T, d time.Duration, alive ...*Instance) {
	t.Helper()
	for range d / beat {
		b.clock.Step(beat)
		for _, i := range alive {
			i.runBeat(t.Context())
		}
	}
}

func acquireClaim(t *testing.T, i *Instance, obj metav1.Object) Claim {
	t.Helper()
	c, err := i.Acquire(t.Context(), obj)
	require.NoError(t, err)
	require.NoError(t, Set(obj, c))
	return c
}

func requireHeld(t *testing.T, i *Instance, obj metav1.Object, holder string) {
	t.Helper()
	_, err := i.Acquire(t.Context(), obj)
	held := new(HeldError)
	require.ErrorAs(t, err, &held)
	require.Equal(t, HeldError{Owner: holder, Address: holder + ":7442"}, *held)
}

func newJob() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job", UID: "uid-1"}}
}

func TestAClaimHoldsWhileItsHolderLives(t *testing.T) {
	b := newBed()
	one, two := b.newInstance("one"), b.newInstance("two")
	_, err := one.Acquire(t.Context(), newJob())
	require.ErrorContains(t, err, "no lease yet", "a claim without a Lease could not be seen dying")
	b.advanceAlive(t, beat, one, two)
	obj := newJob()
	require.Equal(t, Claim{Owner: "one", Address: "one:7442", Epoch: 1}, acquireClaim(t, one, obj))
	b.advanceAlive(t, 10*timeout, one, two)
	requireHeld(t, two, obj, "one")
	require.Empty(t, two.Expired())
	require.Equal(t, int64(2), acquireClaim(t, one, obj).Epoch, "the holder itself goes on with a new epoch")
}

func TestAClaimIsFreeAfterItsHolderWasWatchedDying(t *testing.T) {
	b := newBed()
	one, two := b.newInstance("one"), b.newInstance("two")
	b.advanceAlive(t, beat, one, two)
	obj := newJob()
	acquireClaim(t, one, obj)
	b.advanceAlive(t, timeout-beat, two)
	requireHeld(t, two, obj, "one")
	b.advanceAlive(t, beat, two)
	require.Equal(t, "one", <-two.Expired())
	require.Equal(t, Claim{Owner: "two", Address: "two:7442", Epoch: 2}, acquireClaim(t, two, obj))
	b.advanceAlive(t, timeout, two)
	require.Empty(t, two.Expired(), "a death is told once")
}

func TestAReleasedLeaseFreesAtOnce(t *testing.T) {
	b := newBed()
	one, two := b.newInstance("one"), b.newInstance("two")
	b.advanceAlive(t, beat, one, two)
	obj := newJob()
	acquireClaim(t, one, obj)
	one.releaseLease(t.Context())
	b.advanceAlive(t, beat, two)
	require.Equal(t, "one", <-two.Expired())
	acquireClaim(t, two, obj)
	require.NoError(t, Set(obj, Claim{Epoch: 2}))
	require.Equal(t, int64(3), acquireClaim(t, two, obj).Epoch, "a hand-over keeps the epoch rising")
}

func TestTimeInWhichNobodyLookedDoesNotCount(t *testing.T) {
	for name, blind := range map[string]func(t *testing.T, b *bed, two *Instance){
		"the watcher was paused": func(_ *testing.T, b *bed, _ *Instance) { b.clock.Step(10 * timeout) },
		"the API server was away": func(t *testing.T, b *bed, two *Instance) {
			t.Helper()
			b.away.Store(true)
			b.advanceAlive(t, 10*timeout, two)
			b.away.Store(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			one, two := b.newInstance("one"), b.newInstance("two")
			b.advanceAlive(t, beat, one, two)
			obj := newJob()
			acquireClaim(t, one, obj)
			blind(t, b, two)
			b.advanceAlive(t, beat, two)
			requireHeld(t, two, obj, "one")
			b.advanceAlive(t, timeout, two)
			acquireClaim(t, two, obj)
		})
	}
}

func TestAnUnknownHolderIsWatchedFromTheFirstQuestionOn(t *testing.T) {
	b := newBed()
	two := b.newInstance("two")
	b.advanceAlive(t, beat, two)
	obj := newJob()
	require.NoError(t, Set(obj, Claim{Owner: "lost", Address: "lost:7442", Epoch: 7}))
	requireHeld(t, two, obj, "lost")
	b.advanceAlive(t, timeout, two)
	requireHeld(t, two, obj, "lost")
	b.advanceAlive(t, beat, two)
	require.Equal(t, int64(8), acquireClaim(t, two, obj).Epoch)
}

func TestLeasesOfTheLongDeadAreRemoved(t *testing.T) {
	b := newBed()
	one, two := b.newInstance("one"), b.newInstance("two")
	b.advanceAlive(t, beat, one, two)
	leases := func() (names []string) {
		list := &coordinationv1.LeaseList{}
		require.NoError(t, b.client.List(t.Context(), list, client.InNamespace(namespace)))
		for _, l := range list.Items {
			names = append(names, l.Name)
		}
		return names
	}
	b.advanceAlive(t, sweepTimeouts*timeout-beat, two)
	require.Equal(t, []string{"one", "two"}, leases())
	b.advanceAlive(t, 2*beat, two)
	require.Equal(t, []string{"two"}, leases())
}

func TestRunHoldsTheLeaseUntilItEnds(t *testing.T) {
	b := newBed()
	one := b.newInstance("one")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- one.Run(ctx) }()
	require.Eventually(t, one.Ready, time.Minute, time.Millisecond)
	read := func() *coordinationv1.Lease {
		lease := &coordinationv1.Lease{}
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "one"}, lease))
		return lease
	}
	first := read()
	require.Equal(t, "one", *first.Spec.HolderIdentity)
	require.Eventually(t, func() bool {
		b.clock.Step(beat)
		return read().ResourceVersion != first.ResourceVersion
	}, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Empty(t, *read().Spec.HolderIdentity, "released for whoever watches")
}

// newGuardedJob creates a claimed job and guards it.
func newGuardedJob(t *testing.T, b *bed) (context.Context, context.CancelFunc, *corev1.ConfigMap) {
	t.Helper()
	one := b.newInstance("one")
	b.advanceAlive(t, beat, one)
	obj := newJob()
	acquireClaim(t, one, obj)
	require.NoError(t, b.client.Create(t.Context(), obj))
	ctx, cancel := one.Guard(t.Context(), obj, nil)
	t.Cleanup(cancel)
	return ctx, cancel, obj
}

func TestGuardEndsWithTheClaim(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *bed, *corev1.ConfigMap){
		"another epoch": func(t *testing.T, b *bed, obj *corev1.ConfigMap) {
			t.Helper()
			require.NoError(t, Set(obj, Claim{Owner: "one", Epoch: 2}))
			require.NoError(t, b.client.Update(t.Context(), obj))
		},
		"another holder": func(t *testing.T, b *bed, obj *corev1.ConfigMap) {
			t.Helper()
			require.NoError(t, Set(obj, Claim{Owner: "two", Epoch: 1}))
			require.NoError(t, b.client.Update(t.Context(), obj))
		},
		"no claim": func(t *testing.T, b *bed, obj *corev1.ConfigMap) {
			t.Helper()
			obj.Annotations = nil
			require.NoError(t, b.client.Update(t.Context(), obj))
		},
		"gone": func(t *testing.T, b *bed, obj *corev1.ConfigMap) {
			t.Helper()
			require.NoError(t, b.client.Delete(t.Context(), obj))
		},
		"replaced": func(t *testing.T, b *bed, obj *corev1.ConfigMap) {
			t.Helper()
			require.NoError(t, b.client.Delete(t.Context(), obj))
			again := newJob()
			again.UID, again.Annotations = "uid-2", obj.Annotations
			require.NoError(t, b.client.Create(t.Context(), again))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed()
			ctx, _, obj := newGuardedJob(t, b)
			lose(t, b, obj)
			require.Eventually(t, func() bool { b.clock.Step(guardPeriod); return ctx.Err() != nil }, time.Minute, time.Millisecond)
			require.ErrorIs(t, context.Cause(ctx), ErrLost)
		})
	}
}

func TestGuardOutlivesEditsAndOutages(t *testing.T) {
	b := newBed()
	ctx, cancel, obj := newGuardedJob(t, b)
	obj.Data = map[string]string{"progress": "1"}
	require.NoError(t, b.client.Update(t.Context(), obj))
	looked := func() {
		before := b.reads.Load()
		require.Eventually(t, func() bool { b.clock.Step(guardPeriod); return b.reads.Load() >= before+2 }, time.Minute, time.Millisecond)
	}
	looked()
	b.away.Store(true)
	looked()
	require.NoError(t, ctx.Err())
	cancel()
	require.NotErrorIs(t, context.Cause(ctx), ErrLost)
}

// What others write on the object reaches the holder within a period.
func TestGuardShowsWhatItSees(t *testing.T) {
	b := newBed()
	one := b.newInstance("one")
	b.advanceAlive(t, beat, one)
	obj := newJob()
	acquireClaim(t, one, obj)
	require.NoError(t, b.client.Create(t.Context(), obj))
	var asked atomic.Bool
	ctx, cancel := one.Guard(t.Context(), obj, func(o client.Object) {
		if o.GetAnnotations()[holdfast.AnnotationCancel] != "" {
			asked.Store(true)
		}
	})
	defer cancel()
	obj = obj.DeepCopy()
	obj.Annotations[holdfast.AnnotationCancel] = "true"
	require.NoError(t, b.client.Update(t.Context(), obj))
	require.False(t, asked.Load())
	require.Eventually(t, func() bool { b.clock.Step(guardPeriod); return asked.Load() }, time.Minute, time.Millisecond)
	require.NoError(t, ctx.Err())
}

func TestGuardOfAnUnclaimedObjectHasEnded(t *testing.T) {
	ctx, cancel := newBed().newInstance("one").Guard(t.Context(), newJob(), nil)
	defer cancel()
	require.ErrorIs(t, context.Cause(ctx), ErrLost)
}

func TestBadClaimsAreErrors(t *testing.T) {
	for _, text := range []string{"", "one", `{"holder":"one"}`, `{"holder":"one","epoch":-1}`, `{"epoch":"1"}`} {
		obj := newJob()
		obj.Annotations = map[string]string{holdfast.AnnotationClaim: text}
		_, _, err := Parse(obj)
		require.ErrorContains(t, err, holdfast.AnnotationClaim, text)
		require.ErrorIs(t, Check(obj, Claim{Owner: "one", Epoch: 1}), ErrLost)
	}
}
