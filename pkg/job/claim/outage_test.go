package claim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// An API server that is away for a minute, in every way it can be, expires no holder, however often
// successors read and however late the holder is back.
func TestAnOutageExpiresNobody(t *testing.T) {
	refuse := errors.New("etcdserver: mvcc: database space exceeded")
	for name, outage := range map[string]func(t *testing.T, b *bed) interceptor.Funcs{
		"reads are refused": func(*testing.T, *bed) interceptor.Funcs {
			return interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return refuse }}
		},
		"writes are refused": func(*testing.T, *bed) interceptor.Funcs {
			return interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return refuse
			}}
		},
		"answers hang": func(t *testing.T, b *bed) interceptor.Funcs {
			t.Helper()
			return interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				b.clock.Step(timeout / gapsPerTimeout)
				return context.DeadlineExceeded
			}}
		},
		"reads come from an old cache": func(t *testing.T, b *bed) interceptor.Funcs {
			t.Helper()
			old := &coordinationv1.LeaseList{}
			require.NoError(t, b.client.List(t.Context(), old))
			return interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				old.DeepCopyInto(list.(*coordinationv1.LeaseList)) //nolint:forcetypeassert // nothing else is listed
				return nil
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, one, two, obj := newClaimedJob(t)
			up := two.cfg
			broken := interceptor.NewClient(b.client.(client.WithWatch), outage(t, b)) //nolint:forcetypeassert // the bed's own
			two.cfg.Reader, two.cfg.Client = broken, broken
			b.advanceAlive(t, 2*timeout, two)
			requireHeld(t, two, obj, "one")
			two.cfg.Reader, two.cfg.Client = up.Reader, up.Client
			b.advanceAlive(t, timeout-beat, two)
			requireHeld(t, two, obj, "one")
			b.advanceAlive(t, beat, one, two)
			b.advanceAlive(t, timeout-beat, two)
			requireHeld(t, two, obj, "one")
			require.Empty(t, two.Expired())
			b.advanceAlive(t, 2*beat, two)
			require.Equal(t, "one", <-two.Expired(), "real silence still counts")
		})
	}
}

// A successor that is cut off alone expires no holder; the others take over from a dead holder
// nevertheless, and a holder without writes loses its claim to them.
func TestOnePartitionedSuccessor(t *testing.T) {
	b, one, two, obj := newClaimedJob(t)
	three := b.newInstance("three")
	b.advanceAlive(t, beat, one, two, three)
	refuse := errors.New("no route to host")
	cut := interceptor.NewClient(b.client.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // the bed's own
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refuse
		},
	})
	two.cfg.Client, one.cfg.Client = cut, cut // reads work, renewals do not
	b.advanceAlive(t, timeout, one, two, three)
	requireHeld(t, two, obj, "one")
	stealClaim(t, b, three, obj)
	require.ErrorIs(t, one.Confirm(t.Context(), obj), ErrLost)
}

// The holder's clock and what it writes into its Lease mean nothing to others.
func TestAHolderWithAnotherClock(t *testing.T) {
	b, one, two, obj := newClaimedJob(t)
	for i := range 20 {
		own := newBed().clock
		own.SetTime(time.Unix(int64(i%2)*2_000_000_000, 0))
		one.cfg.Clock = own
		b.advanceAlive(t, beat, one, two)
		requireHeld(t, two, obj, "one")
	}
}

// The Lease is deleted repeatedly: the holder writes it anew.
func TestADeletedLeaseIsWrittenAgain(t *testing.T) {
	b, one, two, obj := newClaimedJob(t)
	for range 20 {
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = namespace, "one"
		require.NoError(t, b.client.Delete(t.Context(), lease))
		b.advanceAlive(t, beat, two)
		b.advanceAlive(t, beat, one, two)
		requireHeld(t, two, obj, "one")
	}
	require.NoError(t, one.Confirm(t.Context(), obj))
}

// A successor that slept goes by no old answer: the holder may have come back.
func TestASuccessorThatSleptLooksFirst(t *testing.T) {
	b, one, two, obj := newClaimedJob(t)
	b.advanceAlive(t, timeout, two)
	require.Equal(t, "one", <-two.Expired())
	b.clock.Step(timeout)
	one.runBeat(t.Context())
	requireHeld(t, two, obj, "one")
	b.advanceAlive(t, beat, one, two)
	requireHeld(t, two, obj, "one")
	b.advanceAlive(t, timeout, two)
	require.Equal(t, "one", <-two.Expired(), "a death after a return is told again")
}
