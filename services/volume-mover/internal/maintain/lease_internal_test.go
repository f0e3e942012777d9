package maintain

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

func newLeaseBed() (*memstore.Store, *clocktesting.FakeClock) {
	return memstore.New(), clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
}

// TestOfManyHoldersOneSucceeds checks that a lease is taken once, however many want it at the same time.
func TestOfManyHoldersOneSucceeds(t *testing.T) {
	store, c := newLeaseBed()
	for round := range 3 {
		var wait sync.WaitGroup
		var mu sync.Mutex
		var holder *lease
		var held int
		for range 20 {
			wait.Go(func() {
				l, err := acquireLease(t.Context(), store, "app", "h", c)
				mu.Lock()
				defer mu.Unlock()
				var other *heldError
				switch {
				case errors.As(err, &other):
					held++
				case err == nil:
					holder = l
				}
			})
		}
		wait.Wait()
		require.Equal(t, 19, held, round)
		require.NoError(t, holder.releaseLease(t.Context()))
		require.Len(t, store.Keys(), 1, "the records before are gone")
	}
}

// TestALateHolderIsNone checks one that looked before others took and gave back the lease: the number that it creates
// is free again, and counts for nothing.
func TestALateHolderIsNone(t *testing.T) {
	store, c := newLeaseBed()
	var begun atomic.Bool
	store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCreate && !begun.Swap(true) {
			first, err := acquireLease(t.Context(), store, "app", "a", c)
			require.NoError(t, err)
			require.NoError(t, first.releaseLease(t.Context()))
			_, err = acquireLease(t.Context(), store, "app", "b", c)
			require.NoError(t, err)
		}
		return nil
	})
	var held *heldError
	_, err := acquireLease(t.Context(), store, "app", "late", c)
	require.ErrorAs(t, err, &held)
	require.Equal(t, []string{"metadata/holdfast/maintenance/app/000000000002"}, store.Keys())
}

// TestARunThatCannotKeepItsLeaseIsStopped checks a bucket that cannot be written any more.
func TestARunThatCannotKeepItsLeaseIsStopped(t *testing.T) {
	store, c := newLeaseBed()
	l, err := acquireLease(t.Context(), store, "app", "a", c)
	require.NoError(t, err)
	var away atomic.Bool
	var renewals atomic.Int32
	store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpPut {
			renewals.Add(1)
			if away.Load() {
				return errors.New("away")
			}
		}
		return nil
	})
	ended := make(chan error, 1)
	go func() {
		ended <- l.runRenewing(t.Context(), c, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	}()
	require.Eventually(t, c.HasWaiters, time.Minute, time.Millisecond)
	step := func() {
		before := renewals.Load()
		c.Step(renewInterval)
		require.Eventually(t, func() bool { return renewals.Load() > before }, time.Minute, time.Millisecond)
	}
	for range 12 { // an hour, which is longer than the lease is without renewal
		step()
	}
	away.Store(true)
	for range int(leaseDuration / renewInterval) {
		step()
		require.Empty(t, ended)
	}
	c.Step(renewInterval)
	require.ErrorIs(t, <-ended, errExpired)
}
