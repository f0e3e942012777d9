package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const (
	stopGrace = 10 * time.Second
)

// binaries are those of this repository's tools.
var binaries = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns", "containerd", "containerd-shim-runc-v2", "runc", "ctr", "kube-proxy",
	"kubelet", "versitygw",
}

// Config is where and how a cluster with a node is started. All fields are required.
type Config struct {
	Dir string    // data, configuration, kubeconfig and logs; new or empty
	Log io.Writer // of progress
	// Program is an executable that calls Init for the command `init` and Run for the command `run`,
	// each with the arguments DIR and LINK.
	Program string
}

// Up starts a cluster that lives on when this process ends, and returns when its node is ready and
// its store answers. What it started is gone when it fails; the logs stay.
func Up(ctx context.Context, config Config) (err error) {
	for _, name := range binaries {
		if _, err := testbed.Binary(name); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return err
	}
	if s, err := readState(dir); err == nil {
		if s.isRunning(dir) {
			return fmt.Errorf("%w: process %d in %s", testbed.ErrRunning, s.Pid, dir)
		}
		return fmt.Errorf("the cluster in %s has ended by itself (%s): take it down first", dir, filepath.Join(dir, logFile))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	link, err := newLink(ctx)
	if err != nil {
		return err
	}
	s := clusterState{Link: link}
	defer func() {
		if err != nil {
			err = errors.Join(err, stopCluster(context.WithoutCancel(ctx), dir, s))
		}
	}()
	ended, err := startFirst(config.Program, dir, link, &s)
	if err != nil {
		return err
	}
	if err := runIP(ctx, "link", "set", peerEnd(link), "netns", strconv.Itoa(s.Pid)); err != nil {
		return err
	}
	return awaitReady(ctx, dir, ended, config.Log)
}

// startFirst starts the first process of the namespaces and writes the state file. The channel is
// closed when the process ends.
func startFirst(program, dir string, link int, s *clusterState) (<-chan struct{}, error) {
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, "init", dir, strconv.Itoa(link)) //nolint:noctx // it outlives this process
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the node: %w", err)
	}
	s.Pid = cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return ended, writeJSON(filepath.Join(dir, stateFile), s)
}

// awaitReady copies the progress of the node until it is ready.
func awaitReady(ctx context.Context, dir string, ended <-chan struct{}, log io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, testbed.Patience)
	defer cancel()
	path := filepath.Join(dir, logFile)
	progress, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = progress.Close() }()
	for ticker := time.NewTicker(look); ; {
		if _, err := io.Copy(log, progress); err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(dir, readyFile)); err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the node has ended; the last lines of %s:\n%s", path, testbed.Tail(path, 20))
		case <-ctx.Done():
			return fmt.Errorf("the node does not get ready: %w; log: %s", ctx.Err(), path)
		case <-ticker.C:
		}
	}
}

// Down ends the cluster in dir and removes the directory. The error is ErrNotRunning, and the
// directory stays, where there is none.
func Down(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	s, err := readState(dir)
	if err != nil {
		return err
	}
	if err := stopCluster(ctx, dir, s); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// stopCluster ends every process of a cluster, with the mounts and networks in its namespaces, and removes
// its network device, its cgroups and its loop devices, which succeeds when the last process has ended. It may be repeated.
func stopCluster(ctx context.Context, dir string, s clusterState) error {
	signal, deadline := syscall.SIGTERM, time.Now().Add(stopGrace)
	for s.isRunning(dir) {
		if err := syscall.Kill(s.Pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end process %d: %w", s.Pid, err)
		}
		time.Sleep(look)
		if time.Now().After(deadline) {
			signal = syscall.SIGKILL // takes all processes of the namespace along
		}
	}
	var errs error
	if device := filepath.Join("/sys/class/net", hostEnd(s.Link)); fileExists(device) {
		// The kernel removes it too, some time after the other end's namespace.
		if err := runIP(ctx, "link", "del", hostEnd(s.Link)); err != nil && fileExists(device) {
			errs = err
		}
	}
	errs = errors.Join(errs, removeCgroups(cgroupOf(s.Link))) // no process is left that has a device open
	return errors.Join(errs, directorydriver.ReleaseDevices(DriverDir(dir)))
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
