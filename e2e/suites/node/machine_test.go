//go:build node

package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// machineState returns what a node could leave on this machine or change of it: mounts, network devices,
// routes, packet filters, cgroups and settings of the kernel.
func machineState(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{
		"mounts": commandLines(t, "cat", "/proc/self/mountinfo"),
		"routes": commandLines(t, "ip", "-4", "route"),
		"filter": commandLines(t, "iptables-save"),
	}
	for name, pattern := range map[string]string{"devices": "/sys/class/net/*", "cgroups": "/sys/fs/cgroup/*/*"} {
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

// cgroupOf returns the root of the cgroups of a cluster, which all of its processes are in or below.
func cgroupOf(link int) string { return fmt.Sprintf("/holdfast-hf%d", link) }

// processesIn returns the command lines of the processes in a cgroup and below it, by the PID that the
// machine gives them.
func processesIn(t *testing.T, cgroup string) (commands []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, path := range paths {
		// A process may end meanwhile.
		if cgroups, err := os.ReadFile(filepath.Join(path, "cgroup")); err != nil || !strings.Contains(string(cgroups), ":"+cgroup) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(path, "cmdline"))
		commands = append(commands, filepath.Base(path)+" "+strings.ReplaceAll(string(command), "\x00", " "))
	}
	return commands
}
