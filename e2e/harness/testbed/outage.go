package testbed

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
)

// PauseAPIServer stops the API server's process (SIGSTOP): connections stay open and no request is
// answered, until ResumeAPIServer.
func (c *Cluster) PauseAPIServer() error {
	i, err := c.apiServer()
	if err != nil {
		return err
	}
	return c.processes[i].Signal(syscall.SIGSTOP)
}

// ResumeAPIServer lets a paused API server go on.
func (c *Cluster) ResumeAPIServer() error {
	i, err := c.apiServer()
	if err != nil {
		return err
	}
	return c.processes[i].Signal(syscall.SIGCONT)
}

// KillAPIServer ends the API server's process at once: connections break and new ones are refused.
// What it stored stays, in etcd.
func (c *Cluster) KillAPIServer() error {
	i, err := c.apiServer()
	if err != nil {
		return err
	}
	c.processes[i].Kill()
	return nil
}

// RestartAPIServer starts a killed API server again, on the same address and with the same data,
// and returns when it is ready. It must not run beside Stop or Pids.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	i, err := c.apiServer()
	if err != nil {
		return err
	}
	old := c.processes[i]
	process, err := StartProcess(ProcessSpec{Name: old.name, Path: old.cmd.Path, Args: old.cmd.Args[1:], Env: old.cmd.Env, LogDir: filepath.Dir(old.logPath)})
	if err != nil {
		return err
	}
	c.processes[i] = process
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return waitFor(ctx, process, c.apiServerReady)
}

func (c *Cluster) apiServer() (int, error) {
	for i, process := range c.processes {
		if strings.HasPrefix(process.name, "kube-apiserver") {
			return i, nil
		}
	}
	return 0, errors.New("the cluster has no API server")
}
