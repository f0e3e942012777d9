package queue_test

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// histories is few by default: the race detector keeps something of each (some 100 KB) until the process ends.
var histories = flag.Uint64("histories", 2_000, "random histories TestModel plays")

// lives plays histories until one goes wrong, and returns how many backups were
// admitted in them, past how many with lower numbers, and the first that did.
func lives(t *testing.T, histories uint64, bug func(*queue.Scheduler)) (admitted, overtaken, seed uint64, problems []string) {
	t.Helper()
	const workers = 16 // conflicts sleep, so more than there are processors
	var next atomic.Uint64
	var started, overtakings atomic.Uint64
	var found sync.Once
	var group sync.WaitGroup
	var wrong atomic.Bool
	for range workers {
		group.Go(func() {
			for n := next.Add(1); n <= histories && !wrong.Load(); n = next.Add(1) {
				h := newHistory(t.Context(), n, bug)
				if p := h.live(); len(p) > 0 {
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

// Two schedulers, faults, pauses, deaths and old lists, priorities that age, queued
// backups cancelled, limits changed and locations unavailable on the way: never two overlapping jobs, never
// out of order, nobody stuck or starved, positions dense when it is quiet.
func TestModel(t *testing.T) {
	admitted, overtaken, seed, problems := lives(t, *histories, nil)
	require.Empty(t, problems, "history %d", seed)
	require.Greater(t, admitted, *histories, "hardly anything ran: the test shows nothing")
	require.Greater(t, overtaken, *histories/10, "hardly anybody had priority: the test shows nothing")
}

// The model test is worth something: it notices each of these.
func TestModelNoticesSeededBugs(t *testing.T) {
	for name, bug := range map[string]func(*queue.Scheduler){
		"a more urgent one overtakes":  (*queue.Scheduler).OvertakeIntoOverlaps,
		"queued ahead is ignored":      (*queue.Scheduler).IgnoreQueuedAhead,
		"what is gone has stopped":     (*queue.Scheduler).ForgetAtOnce,
		"ReadyToStart is ignored":      (*queue.Scheduler).IgnoreReadyToStart,
		"Finalizing counts as running": (*queue.Scheduler).CountFinalizing,
	} {
		t.Run(name, func(t *testing.T) {
			_, _, seed, problems := lives(t, 2_000, bug)
			require.NotEmpty(t, problems)
			t.Logf("history %d: %v", seed, problems)
		})
	}
}
