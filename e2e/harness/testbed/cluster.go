package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// Patience bounds every wait of a scenario. It ends what hangs and judges no speed: a machine with other work to do takes its time.
	Patience   = 10 * time.Minute
	stopGrace  = 3 * time.Second // the data is thrown away: no need for an orderly end
	startTries = 3               // a free port may be taken before it is used

	loopback = "127.0.0.1"
)

// Config is where and how a cluster is started. The zero value of every field but Dir is fine.
type Config struct {
	Dir           string    // data, keys, kubeconfig and logs; created when missing; must be empty or new
	Log           io.Writer // progress lines; nil is silent
	Address       string    // IPv4 address of this host that nodes and their pods reach; empty: loopback only
	APIServerArgs []string  // added to the API server's flags; later flags win
	Env           []string  // added to the environment of all three processes
	Detach        bool      // the processes live on when this one ends; see StopDetached
}

// Cluster is a running control plane. Its methods are safe for concurrent use.
type Cluster struct {
	dir       string
	address   string // where the API server is reached
	open      bool   // it is reached from elsewhere than loopback, and there are nodes
	authority *certAuthority
	url       string
	etcdURL   string
	config    *rest.Config

	stop      sync.Once
	processes []*Process // in the order they were started
}

// Start starts a control plane and returns when it serves requests and its controllers work, or
// when ctx ends. The caller calls Stop.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if config.Dir == "" {
		return nil, errors.New("testbed.Config.Dir is empty")
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("testbed.Config.Dir: %w", err)
	}
	config.Dir = dir
	if config.Log == nil {
		config.Log = io.Discard
	}
	if pids, err := ownPids(dir); err != nil || len(pids) > 0 {
		return nil, errors.Join(err, fmt.Errorf("%w: processes %v in %s", ErrRunning, pids, dir))
	}
	binaries, err := lookupBinaries("etcd", "kube-apiserver", "kube-controller-manager")
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		cluster, err := startOnce(ctx, config, binaries)
		if err == nil {
			return cluster, nil
		}
		if ctx.Err() != nil || try == startTries || !errors.Is(err, errEndedEarly) {
			return nil, err
		}
	}
}

// errEndedEarly marks a failure that fresh ports may cure.
var errEndedEarly = errors.New("a process of the control plane ended early")

func lookupBinaries(names ...string) (map[string]string, error) {
	found := make(map[string]string, len(names))
	for _, name := range names {
		path, err := Binary(name)
		if err != nil {
			return nil, err
		}
		found[name] = path
	}
	return found, nil
}

func startOnce(ctx context.Context, config Config, binaries map[string]string) (_ *Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := os.RemoveAll(filepath.Join(config.Dir, "etcd")); err != nil {
		return nil, err
	}
	for _, dir := range []string{config.Dir, filepath.Join(config.Dir, "etcd"), filepath.Join(config.Dir, "run")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	c := &Cluster{dir: config.Dir, address: cmp.Or(config.Address, loopback), open: config.Address != ""}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	ports, err := FreePorts(4)
	if err != nil {
		return nil, err
	}
	if c.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	if err := c.authority.writeFiles(config.Dir, c.address); err != nil {
		return nil, err
	}
	c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	c.url = fmt.Sprintf("https://%s:%d", c.address, ports[2])
	if err := c.writeKubeconfigs(); err != nil {
		return nil, err
	}
	steps := []startStep{
		{"etcd", etcdArgs(c, ports), c.etcdReady},
		{"kube-apiserver", append(apiServerArgs(c, ports), config.APIServerArgs...), c.apiServerReady},
		{"kube-controller-manager", controllerArgs(c, ports), c.controllersReady},
	}
	for _, s := range steps {
		if err := c.runStep(ctx, config, s, binaries[s.name]); err != nil {
			return nil, err
		}
	}
	if config.Detach {
		return c, c.writePids()
	}
	return c, nil
}

// startStep is one process of the control plane.
type startStep struct {
	name  string
	args  []string
	ready func(context.Context) error // nil when it answers
}

func (c *Cluster) runStep(ctx context.Context, config Config, s startStep, binary string) error {
	began := time.Now()
	process, err := StartProcess(ProcessSpec{Name: s.name, Path: binary, Args: s.args, Env: config.Env, LogDir: c.dir, Detach: config.Detach})
	if err != nil {
		return err
	}
	c.processes = append(c.processes, process)
	if err := waitFor(ctx, process, s.ready); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(config.Log, "%s is ready after %.1f s\n", s.name, time.Since(began).Seconds())
	return nil
}

// waitFor polls ready until it succeeds, the process ends, or ctx ends.
func waitFor(ctx context.Context, process *Process, ready func(context.Context) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%w: %w", errEndedEarly, process.EarlyEnd())
		case <-ctx.Done():
			return fmt.Errorf("%s does not get ready (%w): %w; log: %s", process.name, ctx.Err(), err, process.logPath)
		case <-ticker.C:
		}
	}
}

// Kubeconfig returns the path of a kubeconfig file of a cluster administrator.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// RestConfig returns a fresh client configuration of a cluster administrator, without client-side
// rate limits.
func (c *Cluster) RestConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Dir returns the directory that holds the cluster's data and logs.
func (c *Cluster) Dir() string { return c.dir }

// URL returns the API server's address.
func (c *Cluster) URL() string { return c.url }

// EtcdURL returns the address of the cluster's etcd (plain HTTP on loopback), for tests that
// compact revisions or read raw keys.
func (c *Cluster) EtcdURL() string { return c.etcdURL }

// Pids returns the process ids in the order the processes were started.
func (c *Cluster) Pids() []int {
	pids := make([]int, 0, len(c.processes))
	for _, process := range c.processes {
		pids = append(pids, process.Pid())
	}
	return pids
}

// KubeconfigFor writes a kubeconfig of another user, whose rights are whatever RBAC gives to that
// user and those groups, and returns its path.
func (c *Cluster) KubeconfigFor(user string, groups ...string) (string, error) {
	path := filepath.Join(c.dir, "kubeconfig-"+user)
	client, err := c.authority.clientCertificate(user, groups...)
	if err != nil {
		return "", err
	}
	if err := clientcmd.WriteToFile(newKubeconfig(c.url, c.authority.pem, client), path); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}

// Stop stops every process of the control plane, newest first, and returns when they are gone. The
// directory is kept for its logs.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		for i := len(c.processes) - 1; i >= 0; i-- {
			c.processes[i].Stop(stopGrace)
		}
	})
}
