// Package csicontrollers runs beside a control plane what a cluster with CSI volumes and snapshots
// has: the published snapshot-controller, and the published sidecars of a driver, csi-snapshotter and
// csi-provisioner.
package csicontrollers

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Config is what the controllers run for. Every field is required.
type Config struct {
	// Kubeconfig is an administrator's.
	Kubeconfig string
	// Socket is the Unix socket of the driver.
	Socket string
	// Dir gets the logs.
	Dir string
}

// Controllers are running processes. Stop may be called more than once.
type Controllers struct{ processes []*testbed.Process }

// stopGrace is how long a controller has to end.
const stopGrace = 3 * time.Second

// Start starts the controllers of a cluster that has the definitions of the snapshot API. They work
// once they have listed the cluster; what is made before is not lost. The caller calls Stop.
func Start(config Config) (_ *Controllers, err error) {
	c := &Controllers{}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	all := []string{
		"--kubeconfig=" + config.Kubeconfig, "--kube-api-qps=1000", "--kube-api-burst=2000",
		"--retry-interval-start=100ms", "--retry-interval-max=500ms", // what fails on purpose is soon tried again
	}
	sidecar := []string{"--csi-address=" + config.Socket, "--timeout=5s"}
	// csi-snapshotter may lose, until its next resync, that a snapshot is not ready.
	again := "--resync-period=2s"
	// It waits for the definitions of groups, which Define does not make, for 30 s.
	noGroups := "--retry-crd-interval-max=1s"
	for name, more := range map[string][]string{
		"snapshot-controller": {again, noGroups}, "csi-snapshotter": {sidecar[0], sidecar[1], again}, "csi-provisioner": sidecar,
	} {
		path, err := testbed.Binary(name)
		if err != nil {
			return nil, err
		}
		p, err := testbed.StartProcess(testbed.ProcessSpec{Name: name, Path: path, Args: append(more, all...), LogDir: config.Dir})
		if err != nil {
			return nil, err
		}
		c.processes = append(c.processes, p)
	}
	return c, nil
}

// Stop ends the controllers and returns when they are gone.
func (c *Controllers) Stop() {
	for _, p := range c.processes {
		p.Stop(stopGrace)
	}
}

// Ended returns an error that shows the last lines of a controller that has ended by itself; nil
// while all run.
func (c *Controllers) Ended() error {
	for _, p := range c.processes {
		select {
		case <-p.Done():
			return fmt.Errorf("controllers of CSI: %w", p.EarlyEnd())
		default:
		}
	}
	return nil
}

// Logs returns the last lines of every controller's log, for a test that failed.
func (c *Controllers) Logs(lines int) string {
	text := ""
	for _, p := range c.processes {
		text += p.LogPath() + ":\n" + testbed.Tail(p.LogPath(), lines) + "\n"
	}
	return text
}
