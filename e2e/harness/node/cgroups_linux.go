package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// isolateCgroups moves this process to a cgroup of this name in each hierarchy and makes that the root
// of the hierarchy, so that containers are below it wherever a runtime puts them. The calling
// goroutine is locked to its thread, and starts the processes that are in the cgroup namespace.
func isolateCgroups(name string) error {
	hierarchies, err := os.ReadDir(cgroupMount)
	if err != nil {
		return fmt.Errorf("find the cgroups: %w", err)
	}
	for _, h := range hierarchies {
		if !h.IsDir() { // a symbolic link: cpu,cpuacct has several names
			continue
		}
		root := filepath.Join(cgroupMount, h.Name())
		own := filepath.Join(root, name)
		if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if h.Name() == "cpuset" { // one without processors and memory takes no process
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := copyFile(filepath.Join(root, file), filepath.Join(own, file)); err != nil {
					return err
				}
			}
		}
		if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return fmt.Errorf("enter a cgroup: %w", err)
		}
		if err := unix.Mount(own, root, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", root, err)
		}
	}
	// runc finds the cgroup of a container by the paths of /proc/self/cgroup and /proc/self/mountinfo,
	// which are relative to the root of the namespace.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("create a cgroup namespace: %w", err)
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// removeCgroups removes the cgroups of this name and those below them, once their processes are gone.
func removeCgroups(name string) error {
	roots, err := filepath.Glob(filepath.Join(cgroupMount, "*", name))
	if err != nil {
		return err
	}
	for _, root := range roots {
		for deadline := time.Now().Add(stopGrace); ; time.Sleep(look) {
			err := removeTree(root)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove the cgroups of the node: %w", err)
			}
		}
	}
	return nil
}

// removeTree removes the directories of a cgroup, deepest first: their files cannot be removed.
func removeTree(root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if err == nil && entry.IsDir() {
			err = removeTree(filepath.Join(root, entry.Name()))
		}
	}
	if err != nil {
		return err
	}
	return syscall.Rmdir(root)
}
