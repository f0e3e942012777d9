//go:build node

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
)

// machineState returns what a node could leave on this machine or change of it: mounts, network devices,
// loop devices, routes, packet filters, cgroups and settings of the kernel.
func machineState(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{
		"mounts": commandLines(t, "cat", "/proc/self/mountinfo"),
		"routes": commandLines(t, "ip", "-4", "route"),
		"filter": commandLines(t, "iptables-save"),
	}
	for name, pattern := range map[string]string{"devices": "/sys/class/net/*", "cgroups": "/sys/fs/cgroup/*/*", "loops": "/sys/block/loop*/loop"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		found[name] = paths
	}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		require.NoError(t, err)
		found[name] = []string{string(value)}
	}
	return found
}

// commandLines returns the output of a command but for comments and counters of packets.
func commandLines(t *testing.T, name string, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	require.NoError(t, err, name)
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "#") || strings.HasPrefix(line, ":")
	})
}

// processesIn returns the processes in a cgroup and below it.
func processesIn(t *testing.T, cgroup string) map[int]string {
	t.Helper()
	found, err := node.Processes(cgroup)
	require.NoError(t, err)
	return found
}
