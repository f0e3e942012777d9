package pluginhost

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup makes the process the leader of a group, so that its children can be killed with it, and
// has the kernel kill it when its parent dies, however that dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reapProcess waits for the process and kills its group while the dead process still holds the group's id.
func (c *command) reapProcess() error {
	for errors.Is(unix.Waitid(unix.P_PID, c.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	c.killGroup()
	return c.cmd.Wait()
}
