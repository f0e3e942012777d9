package leaderelection_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testConfig(c client.Client, instance string) leaderelection.Config {
	return leaderelection.Config{
		Reader: c, Client: c, Namespace: "velero", Name: "sync", Instance: instance,
		Timeout: time.Second, Log: slog.New(slog.DiscardHandler),
	}
}

// Two replicas: one works at a time, and the other follows when the first stops.
func TestOneReplicaAtATime(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	var working, most atomic.Int32
	seen := make(chan string, 9)
	work := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			most.Store(max(most.Load(), working.Add(1)))
			seen <- name
			<-ctx.Done()
			working.Add(-1)
			return nil
		}
	}
	var group sync.WaitGroup
	stops := map[string]context.CancelFunc{}
	for _, name := range []string{"a", "b"} {
		ctx, cancel := context.WithCancel(t.Context())
		stops[name] = cancel
		group.Go(func() {
			if err := leaderelection.Run(ctx, testConfig(c, name), work(name)); err != nil {
				t.Error(err)
			}
		})
	}
	first := <-seen
	stops[first]()
	second := <-seen
	require.NotEqual(t, first, second)
	stops[second]()
	group.Wait()
	require.EqualValues(t, 1, most.Load())
}

// A leader that cannot renew is stopped, and starts again when it can.
func TestALostLeaseEndsTheTerm(t *testing.T) {
	var broken atomic.Bool
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if broken.Load() {
				return errors.New("injected")
			}
			return c.Update(ctx, obj, opts...)
		},
	}).Build()
	ctx, cancel := context.WithCancel(t.Context())
	terms, ends := make(chan struct{}, 9), make(chan struct{}, 9)
	done := make(chan error, 1)
	go func() {
		done <- leaderelection.Run(ctx, testConfig(c, "a"), func(ctx context.Context) error {
			terms <- struct{}{}
			<-ctx.Done()
			ends <- struct{}{}
			return ctx.Err()
		})
	}()
	<-terms
	broken.Store(true)
	<-ends
	broken.Store(false)
	<-terms
	cancel()
	require.NoError(t, <-done)
}

func TestTheDutysOwnEndIsReturned(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		fn   func(context.Context) error
		want string
	}{
		"error": {func(context.Context) error { return boom }, "boom"},
		"nil":   {func(context.Context) error { return nil }, ""},
		"panic": {func(context.Context) error { panic("on purpose") }, "on purpose"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().Build()
			err := leaderelection.Run(t.Context(), testConfig(c, "a"), tc.fn)
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "holdfast-duty-sync"}}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
			require.Empty(t, *lease.Spec.HolderIdentity, "released")
		})
	}
}

// A term that ends before it began: no replica ever held the Lease.
func TestCompetingEndsWithTheContext(t *testing.T) {
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("injected")
		},
	}).Build()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, leaderelection.Run(ctx, testConfig(c, "a"), func(context.Context) error { return errors.New("ran") }))
}

// A holder renews its Lease three times within the timeout, and a standby follows the timeout after
// the last renewal of one that died: not sooner, and by less than three of its looks later.
func TestAHolderWritesSeldomAndIsReplacedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 15 * time.Second
		var writes atomic.Int32
		var dead atomic.Bool
		var last atomic.Int64
		c := fake.NewClientBuilder().Build()
		dying := interceptor.NewClient(c, interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
				if dead.Load() {
					return errors.New("dead")
				}
				writes.Add(1)
				last.Store(time.Now().UnixNano())
				return c.Update(ctx, obj, opts...)
			},
		})
		first, second := testConfig(dying, "a"), testConfig(c, "b")
		first.Timeout, second.Timeout = timeout, timeout
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var group sync.WaitGroup
		leading, ended := make(chan struct{}), make(chan time.Time, 1)
		group.Go(func() {
			_ = leaderelection.Run(ctx, first, func(ctx context.Context) error {
				close(leading)
				<-ctx.Done()
				ended <- time.Now()
				cancel() // it does not compete again
				return nil
			})
		})
		<-leading
		follows := make(chan time.Time, 1)
		group.Go(func() {
			_ = leaderelection.Run(t.Context(), second, func(context.Context) error {
				follows <- time.Now()
				return nil
			})
		})
		<-time.After(20 * timeout)
		require.GreaterOrEqual(t, int(writes.Load()), 2*20)
		require.LessOrEqual(t, int(writes.Load()), 3*20)
		dead.Store(true)
		silent := func(at time.Time) time.Duration { return at.Sub(time.Unix(0, last.Load())) }
		require.Less(t, silent(<-ended), timeout, "it stops before another follows")
		took := silent(<-follows)
		require.GreaterOrEqual(t, took, timeout)
		require.Less(t, took, timeout+6*timeout/8)
		group.Wait()
	})
}

// A holder that died is replaced after the timeout it ran with, not the default; one that released
// its Lease, long before that.
func TestASilentHolderIsReplacedAfterTheTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		holder  string
		timeout time.Duration
		atLeast time.Duration
		within  time.Duration
	}{
		"killed":   {"dead", 2 * time.Second, 2 * time.Second, leaderelection.DefaultTimeout},
		"released": {"", time.Minute, 0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.NewMicroTime(time.Now())
			c := fake.NewClientBuilder().WithObjects(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "holdfast-duty-sync"},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: &tt.holder, LeaseDurationSeconds: ptr.To(int32(tt.timeout / time.Second)), AcquireTime: &now, RenewTime: &now,
				},
			}).Build()
			cfg := testConfig(c, "next")
			cfg.Timeout = tt.timeout
			begin := time.Now()
			require.NoError(t, leaderelection.Run(t.Context(), cfg, func(context.Context) error { return nil }))
			took := time.Since(begin)
			require.GreaterOrEqual(t, took, tt.atLeast)
			require.Less(t, took, tt.within)
		})
	}
}
