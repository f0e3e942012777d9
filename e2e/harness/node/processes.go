package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// kubelet is the name of its program.
const kubelet = "kubelet"

// Cgroup returns the root of the cgroups of the cluster in dir, which all of its processes are in or below.
func Cgroup(dir string) (string, error) {
	s, err := readState(dir)
	return "/" + cgroupOf(s.Link), err
}

// Processes returns the command lines of the processes in a cgroup and below it, with spaces between the words, by the PID that
// the machine gives them.
func Processes(cgroup string) (map[int]string, error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	found := map[int]string{}
	for _, path := range paths {
		// A process may end meanwhile.
		if cgroups, err := os.ReadFile(filepath.Join(path, "cgroup")); err != nil || !strings.Contains(string(cgroups), ":"+cgroup) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(path, "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(path)); err == nil {
			found[pid] = strings.ReplaceAll(strings.TrimSuffix(string(command), "\x00"), "\x00", " ")
		}
	}
	return found, nil
}

// KillKubelet ends the kubelet of the cluster in dir at once, as a crash does. It is started again.
func KillKubelet(dir string) error {
	cgroup, err := Cgroup(dir)
	if err != nil {
		return err
	}
	processes, err := Processes(cgroup)
	if err != nil {
		return err
	}
	for pid, command := range processes {
		if program, _, _ := strings.Cut(command, " "); filepath.Base(program) == kubelet {
			return syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("the cluster in %s has no kubelet", dir)
}
