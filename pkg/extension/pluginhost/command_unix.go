//go:build unix

package pluginhost

import "syscall"

// killGroup kills the group that the process leads; pid 0 is none.
func killGroup(pid int) {
	if pid > 0 {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // it fails when no process is left, which is what is wanted
	}
}
