package node

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysctls are what kubelet wants of kernel settings that namespaces share. It finds these values, in
// files mounted over them, and the machine keeps its own.
var sysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// Init is the first process of the namespaces: it makes the mounts, starts the command `run` of this
// program with the same arguments, waits for every process of the namespace, and ends with the command.
// The kernel ends what is left then.
func Init(dir string, link int) error {
	runtime.LockOSThread() // which alone has the cgroup namespace, and gives it to its child
	if err := mountPlaces(dir); err != nil {
		return err
	}
	if err := isolateCgroups(cgroupOf(link)); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	child, err := syscall.ForkExec(program, []string{program, "run", dir, strconv.Itoa(link)}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for range signals {
			_ = syscall.Kill(child, syscall.SIGTERM)
		}
	}()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case err != nil && err != syscall.EINTR:
			return fmt.Errorf("wait for processes: %w", err)
		case pid == child:
			if status.ExitStatus() != 0 {
				return fmt.Errorf("the processes of the node: exit code %d", status.ExitStatus())
			}
			return nil
		}
	}
}

// mountPlaces gives the namespace what its processes write at fixed places: in memory, and for what is
// large below dir.
func mountPlaces(dir string) error {
	steps := []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE}, // nothing from here reaches the machine
		{"", "/", "", unix.MS_REC | unix.MS_SHARED},  // pods may have it, within the namespace
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"node", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
		{"node", "/var/lib", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
		{filepath.Join(dir, "containerd"), containerdRoot, "", unix.MS_BIND},
		{filepath.Join(dir, "kubelet"), kubeletRoot, "", unix.MS_BIND},
		{filepath.Join(dir, "volumes"), volumesRoot, "", unix.MS_BIND},
		{filepath.Join(dir, "log"), "/var/log", "", unix.MS_BIND},
	}
	for _, s := range steps {
		if s.flags == unix.MS_BIND {
			for _, path := range []string{s.source, s.target} {
				if err := os.MkdirAll(path, 0o755); err != nil {
					return err
				}
			}
		}
		if err := unix.Mount(s.source, s.target, s.kind, s.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", s.target, err)
		}
	}
	for name, value := range sysctls {
		file := filepath.Join("/run/sysctl", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /proc/sys/%s: %w", name, err)
		}
	}
	return nil
}
