package collect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// A run that dies at any write to the bucket is taken over, and the outcome is that of the
// undisturbed run.
func TestDeathAtEachWrite(t *testing.T) {
	t.Parallel()
	for name, sc := range withActions(allScenarios()) {
		want, total := sc.runUndisturbed(t)
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d workers", name, workers), func(t *testing.T) {
				t.Parallel()
				base, api := sc.setupFor(t, workers)
				for n := 1; ; n += jobtest.WriteStride() {
					s := base.firstOwner(t)
					died := dieAt(s.store, n)
					res, err := Run(t.Context(), s.cfg, s.job)
					if !died() {
						require.NoError(t, err)
						require.Len(t, s.readOutcome(t, res).Items, len(want.Items))
						require.Greater(t, n, 20, "the run was cut at many points")
						return
					}
					require.ErrorIs(t, err, errDead)
					s.store.Inject(nil)
					if sc.between != nil {
						sc.between(api)
					}
					durable := s.countRecorded(t)
					next := s.nextOwner(t, 2)
					if n > 2 {
						next.job.LiveNamespaces = func(context.Context) (int, error) { return 0, errors.New("decided before") }
					}
					lists := &counting{Lister: s.cfg.Lister}
					next.cfg.Lister = lists
					res, err = Run(t.Context(), next.cfg, next.job)
					require.NoError(t, err, "killed at write %d", n)
					got := next.readOutcome(t, res)
					if sc.between != nil { // the revision in the log is another one
						require.Len(t, got.Notes, len(want.Notes))
						got.Notes = want.Notes
					}
					require.Equal(t, want, got, "killed at write %d", n)
					if !sc.anew {
						require.LessOrEqual(t, int(lists.objects.Load()), total-durable, "killed at write %d", n)
					}
				}
			})
		}
	}
}

// A successor continues at the revision of the last holder, also if that had none: with a new cut a
// backup of two revisions would be marked consistent.
func TestASuccessorKeepsTheRecordedCut(t *testing.T) {
	t.Parallel()
	for name, consistent := range map[string]bool{"a revision": true, "no revision": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := allScenarios()["everything"]
			s, api := sc.setupFor(t, 1)
			source := revisions{s.lists, cut.NewKinds(s.lists, clock.RealClock{})}
			s.job.Cut = cut.New(source, consistent)
			died := dieAt(s.store, 6)
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, errDead)
			require.True(t, died())
			s.store.Inject(nil)
			want := s.job.Cut.Revisions()
			require.Equal(t, consistent, len(want) == 1)

			api.Advance() // no request is under way
			newest, err := source.Revision(t.Context())
			require.NoError(t, err)
			require.NotContains(t, want, newest)
			next := s.nextOwner(t, 2)
			_, err = Run(t.Context(), next.cfg, next.job)
			require.NoError(t, err)
			require.Equal(t, want, next.job.Cut.Revisions())
		})
	}
}

func TestTwoDeathsInARow(t *testing.T) {
	t.Parallel()
	sc := allScenarios()["dead kinds"]
	sc.twoDeaths(t, []int{3, 7, 11, 15, 19, 23, 27, 31, 35, 39}, []int{1, 6, 11, 16, 21, 26})
}

// twoDeaths ends a first holder at each of some writes, and its successor at each of others: the
// third one's outcome is that of the undisturbed run.
func (sc *scenario) twoDeaths(t *testing.T, first, second []int) {
	t.Helper()
	want, _ := sc.runUndisturbed(t)
	base, _ := sc.setupFor(t, 4)
	for i, n := range first {
		for k, m := range second {
			if (i+k)%jobtest.WriteStride() != 0 {
				continue
			}
			s := base.firstOwner(t)
			dieAt(s.store, n)
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, errDead)
			next := s.nextOwner(t, 2)
			died := dieAt(s.store, m)
			res, err := Run(t.Context(), next.cfg, next.job)
			if died() {
				require.ErrorIs(t, err, errDead)
				s.store.Inject(nil)
				next = next.nextOwner(t, 3)
				res, err = Run(t.Context(), next.cfg, next.job)
			}
			require.NoError(t, err)
			require.Equal(t, want, next.readOutcome(t, res), "killed at writes %d and %d", n, m)
		}
	}
}

// A holder that sleeps through its takeover in the middle of a write wakes up beside the new one,
// or behind it.
func TestZombie(t *testing.T) {
	t.Parallel()
	sc := allScenarios()["everything"]
	want, _ := sc.runUndisturbed(t)
	for _, workers := range []int{1, 4} {
		base, _ := sc.setupFor(t, workers)
		for n := 1; n < 40; n += 2 + jobtest.WriteStride() {
			s := base.firstOwner(t)
			asleep, wake := make(chan struct{}), make(chan struct{})
			var mu sync.Mutex
			writes := 0
			s.store.Inject(func(op memstore.Op, _ string) error {
				mu.Lock()
				if op == memstore.OpCreate {
					writes++
				}
				mine := op == memstore.OpCreate && writes == n
				mu.Unlock()
				if mine {
					close(asleep)
					<-wake
				}
				return nil
			})
			woken := make(chan error, 1)
			go func() {
				_, err := Run(t.Context(), s.cfg, s.job)
				woken <- err
			}()
			<-asleep
			next := s.nextOwner(t, 2)
			if n%2 == 1 {
				next.store.Inject(nil) // both go on at once
				close(wake)
			}
			res, err := Run(t.Context(), next.cfg, next.job)
			require.NoError(t, err)
			if n%2 == 0 {
				close(wake)
			}
			if err := <-woken; n%2 == 0 {
				require.ErrorIs(t, err, journal.ErrFenced, "asleep at write %d", n)
			}
			require.Equal(t, want, next.readOutcome(t, res), "asleep at write %d", n)
		}
	}
}

// A holder that is fenced when it records a part removes the part: the successor's sweep may be
// over.
func TestAFencedHolderLeavesNoPart(t *testing.T) {
	sc := allScenarios()["everything"]
	s, _ := sc.setupFor(t, 1)
	var taken atomic.Bool
	s.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.Contains(key, "/1-w0-") && taken.CompareAndSwap(false, true) {
			next := s.nextOwner(t, 2)
			_, err := Run(t.Context(), next.cfg, next.job)
			require.NoError(t, err)
			for _, k := range s.store.Keys() {
				if !strings.Contains(k, "checkpoint") {
					require.NoError(t, s.store.Delete(t.Context(), k))
				}
			}
		}
		return nil
	})
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, journal.ErrFenced)
	require.True(t, taken.Load())
	for _, k := range s.store.Keys() {
		require.Contains(t, k, "checkpoint")
	}
}
