package testbed_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func TestProcessIsStoppedAndKilled(t *testing.T) {
	start := func(script string) *testbed.Process {
		process, err := testbed.StartProcess(testbed.ProcessSpec{
			Name: "script", Path: "/bin/sh", Args: []string{"-c", script}, LogDir: t.TempDir(),
		})
		require.NoError(t, err)
		return process
	}
	obedient := start("echo started; exec sleep 600")
	require.Eventually(t, func() bool { return testbed.Tail(obedient.LogPath(), 1) == "started" }, time.Minute, 10*time.Millisecond)
	obedient.Stop(time.Minute)
	require.ErrorContains(t, obedient.Err(), "terminated")

	stubborn := start(`trap "" TERM; echo started; while :; do sleep 1; done`)
	require.Eventually(t, func() bool { return testbed.Tail(stubborn.LogPath(), 1) == "started" }, time.Minute, 10*time.Millisecond)
	stubborn.Stop(50 * time.Millisecond)
	require.ErrorContains(t, stubborn.Err(), "killed")

	_, err := testbed.StartProcess(testbed.ProcessSpec{Name: "absent", Path: "/no/such/binary", LogDir: t.TempDir()})
	require.ErrorContains(t, err, "absent")
}

// checkStopped asserts that no process of a stopped cluster is left.
func checkStopped(t *testing.T, cluster *testbed.Cluster) {
	t.Helper()
	cluster.Stop()
	pids := cluster.Pids()
	assert.Len(t, pids, 3)
	for _, pid := range pids {
		assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d is still there", pid)
	}
}

func TestComplaintsAreWhatIsNotEverydays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("time=1 level=WARN msg=old\ntime=2 level=INFO msg=started\ntime=3 level=WARN msg=late\ntime=4 level=DEBUG msg=x\npanic: no\n"), 0o600))
	require.Equal(t, "time=3 level=WARN msg=late\npanic: no", testbed.Complaints(path, 2))
	require.Empty(t, testbed.Complaints(path+".absent", 2))
}
