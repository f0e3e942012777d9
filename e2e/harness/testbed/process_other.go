//go:build !linux

package testbed

import "syscall"

// childAttributes puts the child into its own process group; only Linux can tie its life to the
// parent's.
func childAttributes(bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
