package operations

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// runnerDies kills the runner in the middle of a Start: the next holder repeats it with its key.
func (b *bed) runnerDies(t *testing.T) {
	const name = "runner"
	b.Namespace(t, name)
	b.createOwnObject(t, name, "begun", operationOrder{Seconds: 1})
	b.createOwnObject(t, name, "blocked", operationOrder{Start: blocks})
	b.Backup(t, name, b.bucket, name)
	b.awaitCalled(t, name, "blocked")
	b.Fleet.Of("backup-runner")[0].Kill()
	b.calls.releaseOperations(t, name)
	_, err := b.Fleet.Revive(t.Context())
	require.NoError(t, err)
	b.requireAllCompleted(t, name, 2)
	require.Len(t, b.calls.callsOf(t, "start", name)["blocked"], 2, "the Start in flight is repeated")
}

// everythingDies ends each process in turn while operations run: nothing is begun again, and the
// polls go on.
func (b *bed) everythingDies(t *testing.T) {
	const name = "deaths"
	b.Namespace(t, name)
	b.controller.holdOperations(name)
	for _, item := range []string{"one", "two", "three"} {
		b.createOwnObject(t, name, item, operationOrder{Seconds: 1})
	}
	b.createVendorObject(t, name, "four", operationOrder{Seconds: 1})
	b.Backup(t, name, b.bucket, name)
	b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperations)
	for _, service := range []string{"backup-runner", "async-operation-monitor"} {
		b.awaitPolled(t, name)
		b.Kill(t, service)
	}
	for _, pid := range b.awaitPolled(t, name) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	b.awaitPolled(t, name)
	b.Fleet.StopNATS()
	b.controller.releaseHeld(name)
	require.NoError(t, b.Fleet.StartNATS())
	b.requireAllCompleted(t, name, 4)
	b.begunOnce(t, name, 4)
}

// awaitCalled waits until a Start was called.
func (b *bed) awaitCalled(t *testing.T, backup, item string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.calls.callsOf(t, "start", backup)[item]) > 0 }, site.Patience, site.Look, "Start is called for %s", item)
}

// awaitPolled waits until both plugins are asked about operations of a backup from now on, and returns
// their processes.
func (b *bed) awaitPolled(t *testing.T, backup string) (pids []int) {
	t.Helper()
	from := time.Now()
	for _, plugin := range []string{ownBinary, vendorBinary} {
		var pid int
		require.Eventually(t, func() bool {
			var at time.Time
			pid, at = b.calls.lastPoll(t, plugin, backup)
			return at.After(from)
		}, site.Patience, site.Look, "plugin %s is asked", plugin)
		pids = append(pids, pid)
	}
	return pids
}

// requireAllCompleted requires that a backup completes with one operation for each of n items, each of which
// was begun with one key.
func (b *bed) requireAllCompleted(t *testing.T, name string, n int) {
	t.Helper()
	backup := b.awaitEnd(t, name, velerov1.BackupPhaseCompleted, n, 0)
	require.Zero(t, backup.Status.Errors, b.readResults(t, name))
	file, begun := b.readOperations(t, name), b.worksOf(t, name)
	require.Len(t, begun, n, "nothing is begun twice")
	for i := range begun {
		requireCompleted(t, file, &begun[i])
		for _, start := range b.calls.callsOf(t, "start", name)[begun[i].Spec.Item] {
			require.Equal(t, begun[i].Spec.Key, start.key, "repeated with the same key")
		}
	}
}
