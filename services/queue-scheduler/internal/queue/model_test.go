package queue_test

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
)

// histories is few by default: the race detector keeps something of each (some 100 KB) until the
// process ends.
var histories = flag.Uint64("histories", 2_000, "random histories TestModel plays")

// replayedSeed is the history to play alone, or 0.
func replayedSeed(t *testing.T) uint64 {
	t.Helper()
	n, _, err := jobtest.Seed()
	require.NoError(t, err)
	return n
}

// runHistories runs histories, or the one that is replayed, until one fails, and returns how many
// backups were admitted in them, past how many with lower numbers, and the first that did.
func runHistories(t *testing.T, histories uint64) (admitted, overtaken, seed uint64, problems []string) {
	t.Helper()
	const workers = 16 // conflicts sleep, so more than there are processors
	var next atomic.Uint64
	if n := replayedSeed(t); n > 0 {
		next.Store(n - 1)
		histories = n
	}
	var started, overtakings atomic.Uint64
	var found sync.Once
	var group sync.WaitGroup
	var wrong atomic.Bool
	for range workers {
		group.Go(func() {
			for n := next.Add(1); n <= histories && !wrong.Load(); n = next.Add(1) {
				h := newHistory(t.Context(), n)
				if p := h.playHistory(); len(p) > 0 {
					wrong.Store(true)
					found.Do(func() { seed, problems = n, p })
				}
				started.Add(h.started)
				overtakings.Add(h.overtakings)
			}
		})
	}
	group.Wait()
	return started.Load(), overtakings.Load(), seed, problems
}

// Two schedulers, faults, pauses, deaths and old lists, priorities that age, queued backups
// cancelled, limits changed and locations unavailable on the way: never two overlapping jobs, never
// out of order, no job stuck or starved, positions dense once nothing changes.
func TestModel(t *testing.T) {
	admitted, overtaken, seed, problems := runHistories(t, *histories)
	require.Empty(t, problems, "%s=%d replays it", jobtest.Variable, seed)
	if replayedSeed(t) > 0 {
		return
	}
	require.Greater(t, admitted, *histories, "hardly anything ran: the test shows nothing")
	require.Greater(t, overtaken, *histories/10, "hardly anybody had priority: the test shows nothing")
}
