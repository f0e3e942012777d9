package csisnapshot_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/csitest"
)

// locks are the volumes that are locked; those that are busy are another backup's.
type locks struct {
	mu           sync.Mutex
	busy         map[string]bool
	held         map[string]bool
	asked        int // for a busy volume
	times, twice int // unlocked, and without having been locked
}

func volumeOf(claim string) string { return "csi/" + driver + "/vol-" + claim }

func (l *locks) lockVolume(ctx context.Context, volume string) (func(), error) {
	if l.busy[volume] {
		l.mu.Lock()
		l.asked++
		l.mu.Unlock()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]bool{}
	}
	l.held[volume] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.held[volume] {
			l.twice++
		}
		delete(l.held, volume)
		l.times++
	}, nil
}

func (l *locks) lockCounts() (held, times, twice int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held), l.times, l.twice
}

func prestartClaims(ctx context.Context, s *csisnapshot.Snapshotter, claims int) {
	var keyed []action.Keyed
	for i := range claims {
		keyed = append(keyed, action.Keyed{Namespace: "a", Name: fmt.Sprintf("c%d", i), Key: fmt.Sprintf("k%d", i)})
	}
	s.Prestart(ctx, keyed)
}

// begunAhead begins the snapshots of two claims, of which that of cut is cut behind the back of
// what watches them: its clock stands still.
func begunAhead(ctx context.Context, t *testing.T, b *bed, s *csisnapshot.Snapshotter, cut ...string) {
	t.Helper()
	c := clocktesting.NewFakeClock(time.Now())
	s.Clock = c
	for i := range 2 {
		b.driver.Behave(fmt.Sprintf("a/c%d", i), csitest.Behaviour{Cut: -1})
	}
	prestartClaims(ctx, s, 2)
	require.Eventually(t, func() bool { return c.Waiters() == 2 }, patience, time.Millisecond)
	for _, name := range cut {
		b.driver.Behave("a/"+name, csitest.Behaviour{})
	}
	require.Eventually(t, func() bool {
		var all snapshotv1.VolumeSnapshotList
		require.NoError(t, b.Reader.List(t.Context(), &all))
		n := 0
		for i := range all.Items {
			if ready := all.Items[i].Status; ready != nil && ptr.Deref(ready.ReadyToUse, false) {
				n++
			}
		}
		return n == len(cut)
	}, patience, time.Millisecond)
}

// A claim whose turn has come waited for its snapshot: its volume is free then, though what was begun
// ahead has not looked again.
func TestAVolumeIsUnlockedWithTheTurnOfItsClaim(t *testing.T) {
	b := newBed(t, 2)
	s, l := b.newSnapshotter(), &locks{}
	s.Lock = l.lockVolume
	begunAhead(t.Context(), t, b, s, "c0", "c1")
	for i := range 2 {
		_, err := callAction(t, s, csisnapshot.NameClaim, claimOf(fmt.Sprintf("c%d", i)), fmt.Sprintf("k%d", i))
		require.NoError(t, err)
		held, times, twice := l.lockCounts()
		require.Equal(t, []int{1 - i, i + 1, 0}, []int{held, times, twice})
	}
	s.Wait()
	_, times, _ := l.lockCounts()
	require.Equal(t, 2, times)
}

// A run that ends before the turn of a claim leaves its volume locked only if its snapshot may not be
// cut yet.
func TestTheEndOfARunUnlocksVolumesThatAreCut(t *testing.T) {
	b := newBed(t, 2)
	s, l := b.newSnapshotter(), &locks{}
	s.Lock = l.lockVolume
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begunAhead(ctx, t, b, s, "c1")
	cancel()
	s.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, map[string]bool{volumeOf("c0"): true}, l.held)
}

// A volume that another backup does not let go of costs its claim, within the time of a snapshot, and
// once: what was begun ahead waited for it already.
func TestAWaitForAVolumeIsBounded(t *testing.T) {
	b := newBed(t, 3)
	b.backup.Spec.CSISnapshotTimeout.Duration = time.Second
	s, l := b.newSnapshotter(), &locks{busy: map[string]bool{volumeOf("c0"): true}}
	s.Lock = l.lockVolume
	const want = "claim a/c0: another backup has the volume pv-c0, which was not free within 1s (csiSnapshotTimeout)"
	_, err := callAction(t, s, csisnapshot.NameClaim, claimOf("c0"), "k0")
	require.ErrorContains(t, err, want)
	require.ErrorIs(t, err, csisnapshot.ErrBusy)
	prestartClaims(t.Context(), s, 3)
	s.Wait()
	asked := l.asked
	_, err = callAction(t, s, csisnapshot.NameClaim, claimOf("c0"), "k0")
	require.ErrorContains(t, err, want)
	require.Equal(t, asked, l.asked, "it does not wait again")
	for _, name := range []string{"1", "2"} {
		_, err = callAction(t, s, csisnapshot.NameClaim, claimOf("c"+name), "k"+name)
		require.NoError(t, err)
	}
	held, times, twice := l.lockCounts()
	require.Equal(t, []int{0, 2, 0}, []int{held, times, twice})
}

// The claims behind those whose volumes are busy are cut meanwhile, however many wait.
func TestABusyVolumeDelaysNoOtherClaim(t *testing.T) {
	const waiting = 40
	b := newBed(t, waiting+2)
	b.backup.Spec.CSISnapshotTimeout.Duration = time.Hour
	s, l := b.newSnapshotter(), &locks{busy: map[string]bool{}}
	for i := range waiting {
		l.busy[volumeOf(fmt.Sprintf("c%d", i))] = true
	}
	s.Lock = l.lockVolume
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		prestartClaims(ctx, s, waiting+2)
		s.Wait()
	}()
	require.Eventually(t, func() bool {
		held, times, _ := l.lockCounts()
		return held == 0 && times == 2
	}, patience, time.Millisecond)
	cancel()
	<-done
}
