package disturbance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

// maxPause bounds how long a job may pause when its runner is stopped: long enough for a
// busy machine, shorter than the 15 s after which a job would be found again without any hand-over.
const maxPause = 14 * time.Second

// afterRunners is the service that is restarted after both kinds of runners.
const afterRunners = "async-operation-monitor"

// rollingRestart restarts every process, one after another, twice, while ten backups and five
// restores are under way. The bucket is slow meanwhile, so that jobs are long enough to meet the
// restarts; the first time, what runs is held until all runners are new ones, so that it does meet
// them.
func (b *bed) rollingRestart(t *testing.T) {
	type restore struct{ name, backup, from, to string }
	waves := []struct {
		backups  map[string]string // name to namespaces
		restores []restore
	}{
		{map[string]string{"roll-0": "alpha", "roll-1": "beta", "roll-2": "alpha,beta", "roll-3": "gamma", "roll-4": "alpha"},
			[]restore{{"roll-0", "calm-a", "alpha", "roll-one"}, {"roll-1", "calm-b", "beta", "roll-two"}, {"roll-2", "calm-c", "gamma", "roll-one"}}},
		{map[string]string{"roll-5": "gamma", "roll-6": "alpha,beta", "roll-7": "beta", "roll-8": "gamma", "roll-9": "alpha"},
			[]restore{{"roll-3", "calm-a", "alpha", "roll-two"}, {"roll-4", "calm-d", "beta", "roll-three"}}},
	}
	b.gate.Slow(func(r gate.Request) bool { return strings.Contains(r.Key, "/roll-") }, 400*time.Millisecond)
	t.Cleanup(func() { b.gate.Slow(nil, 0) })
	holds := []*gate.Hold{b.gate.Hold(gate.Writes("backups/roll-")), b.gate.Hold(gate.Writes("restores/roll-"))}
	release := func() {
		for _, hold := range holds {
			hold.Release()
		}
	}
	t.Cleanup(release)
	for _, wave := range waves {
		for name, namespaces := range wave.backups {
			b.Site.Backup(t, name, b.bucket, strings.Split(namespaces, ",")...)
		}
		for _, r := range wave.restores {
			b.Site.Restore(t, r.name, r.backup, r.from, r.to)
		}
		for _, hold := range holds {
			site.AwaitHeld(t, hold)
		}
		for _, member := range slices.Clone(b.Site.Fleet.Members) {
			if member.Service == afterRunners {
				release()
			}
			_, err := b.Site.Fleet.Restart(t.Context(), member)
			require.NoError(t, err)
		}
	}
	b.gate.Slow(nil, 0)
	for _, wave := range waves {
		for name, namespaces := range wave.backups {
			b.checkBackup(t, name, strings.Split(namespaces, ",")...)
		}
		for _, r := range wave.restores {
			b.checkRestore(t, b.Site.RestoreEnds(t, r.name), r.from, r.to)
		}
	}
	require.Positive(t, b.checkPauses(t, "Backup", 10, 2)+b.checkPauses(t, "Restore", 5, 1), "runners let go of jobs")
}

// checkPauses requires hand-overs that are taken up soon. A runner that is stopped in the moment in
// which it takes a job may not know that it has it; such a job is free once the runner's Lease is,
// and the pause counts from the taking.
func (b *bed) checkPauses(t *testing.T, kind string, jobs, least int) (free int) {
	t.Helper()
	var all []site.HandOver
	for i := range jobs {
		all = append(all, b.Site.History.HandOvers(t, kind, fmt.Sprintf("roll-%d", i))...)
	}
	require.GreaterOrEqual(t, len(all), least, "the restarts met jobs of kind %s", kind)
	var longest, sum time.Duration
	for _, h := range all {
		require.Less(t, h.Pause, maxPause, h.Steps)
		longest, sum = max(longest, h.Pause), sum+h.Pause
		if h.Free {
			free++
		}
	}
	t.Logf("%s: %d hand-overs, %d of them let go, pause %s on average, %s at most", kind, len(all), free, sum/time.Duration(len(all)), longest)
	return free
}
