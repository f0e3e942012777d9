//go:build unix && !linux

package pluginhost

import "syscall"

// ownGroup makes the process the leader of a group, so that its children can be killed with it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reapProcess waits for the process and kills its group.
func (c *command) reapProcess() error {
	err := c.cmd.Wait()
	c.killGroup()
	return err
}
