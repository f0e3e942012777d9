package testbed

import "syscall"

// childAttributes puts the child into its own process group and, when bound, ties its life to the
// thread that starts it.
func childAttributes(bound bool) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if bound {
		attributes.Pdeathsig = syscall.SIGKILL
	}
	return attributes
}
