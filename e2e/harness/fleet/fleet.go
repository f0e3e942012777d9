// Package fleet runs Holdfast's services as separate processes against an in-process NATS server,
// as the chart runs them apart: for scenarios with several replicas, for killing one of them, and
// for measuring one of them.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
)

// Services are the services, in the order they are started.
var Services = []string{
	"manifest-indexer", "queue-scheduler", "backup-runner", "restore-runner", "async-operation-monitor", "deletion", "volume-mover",
}

const (
	stopGrace  = 20 * time.Second
	startTries = 4 // another process may take a free port before the service listens on it
)

// Config is what to run. Dir, Kubeconfig and Rest are required.
type Config struct {
	Dir        string              // NATS data, work directories and logs
	Kubeconfig string              // what the services are given
	Rest       *rest.Config        // for installing the definitions
	Namespace  string              // the server namespace; "velero" when empty
	Replicas   int                 // of each service; 1 when zero
	Counts     map[string]int      // of single services, in place of Replicas
	Args       map[string][]string // further flags by service
	Env        []string            // added to every service's environment
	Binaries   string              // directory of the services' binaries; bin/ of the repository when empty
}

// Member is one running service process.
type Member struct {
	*testbed.Process
	Service string // for example "backup-runner"
	GRPC    string // host:port
	HTTP    string // host:port
	WorkDir string // the same for every process in this member's place
	place   int    // among the replicas of the service
}

// Fleet is a set of running services. Stop may be called more than once.
type Fleet struct {
	Members []*Member
	config  Config
	nats    *embednats.Server
	stop    sync.Once
}

// Start installs the definitions, starts NATS and the services, and returns when every one of them
// reports that it is ready. The server namespace must exist. The caller calls Stop.
func Start(ctx context.Context, config Config) (_ *Fleet, err error) {
	if config.Namespace == "" {
		config.Namespace = "velero"
	}
	config.Replicas = max(config.Replicas, 1)
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := crds.Install(ctx, config.Rest); err != nil {
		return nil, err
	}
	f := &Fleet{config: config}
	defer func() {
		if err != nil {
			f.Stop()
		}
	}()
	ports, err := testbed.FreePorts(1)
	if err != nil {
		return nil, err
	}
	if f.nats, err = embednats.Start(embednats.Config{Dir: filepath.Join(config.Dir, "nats"), Host: "127.0.0.1", Port: ports[0]}); err != nil {
		return nil, err
	}
	for _, service := range Services {
		for i := range cmp.Or(config.Counts[service], config.Replicas) {
			member, err := f.startMember(service, i)
			if err != nil {
				return nil, err
			}
			f.Members = append(f.Members, member)
		}
	}
	return f, f.waitReady(ctx)
}

func (f *Fleet) startMember(service string, replica int) (*Member, error) {
	path, err := f.serviceBinary(service)
	if err != nil {
		return nil, err
	}
	ports, err := testbed.FreePorts(2)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", service, replica)
	m := &Member{
		Service: service, GRPC: fmt.Sprintf("127.0.0.1:%d", ports[0]), HTTP: fmt.Sprintf("127.0.0.1:%d", ports[1]),
		WorkDir: filepath.Join(f.config.Dir, "work", name), place: replica,
	}
	args := []string{
		"--kubeconfig", f.config.Kubeconfig, "--namespace", f.config.Namespace, "--nats-url", f.nats.URL(),
		"--work-dir", m.WorkDir, "--grpc-address", m.GRPC, "--http-address", m.HTTP,
	}
	if service == "manifest-indexer" {
		args = append(args, "--artifact-address", "127.0.0.1:0")
	}
	args = append(args, f.config.Args[service]...)
	m.Process, err = testbed.StartProcess(testbed.ProcessSpec{Name: name, Path: path, Args: args, Env: f.config.Env, LogDir: f.config.Dir})
	return m, err
}

func (f *Fleet) serviceBinary(service string) (string, error) {
	if f.config.Binaries != "" {
		return filepath.Join(f.config.Binaries, service), nil
	}
	return testbed.Product(service)
}

func (f *Fleet) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, testbed.Patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for i, m := range f.Members {
		for tries := 1; !isReady(ctx, m); {
			select {
			case <-m.Done():
				if tail := testbed.Tail(m.LogPath(), 15); tries < startTries && strings.Contains(tail, "address already in use") {
					var err error
					if m, err = f.startMember(m.Service, m.place); err != nil {
						return err
					}
					f.Members[i] = m
					tries++
					continue
				}
				return fmt.Errorf("%s ended (%s):\n%s", m.Service, fmt.Sprint(m.Err()), testbed.Tail(m.LogPath(), 15))
			case <-ctx.Done():
				return fmt.Errorf("%s does not get ready: %w:\n%s", m.Service, ctx.Err(), testbed.Tail(m.LogPath(), 15))
			case <-ticker.C:
			}
		}
	}
	return nil
}

// probe has a timeout for a process that accepts a connection and does not answer.
var probe = &http.Client{Timeout: 5 * time.Second}

func isReady(ctx context.Context, m *Member) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.HTTP+"/readyz", nil)
	if err != nil {
		return false
	}
	answer, err := probe.Do(request)
	if err != nil {
		return false
	}
	return errors.Join(answer.Body.Close()) == nil && answer.StatusCode == http.StatusOK && m.isMemberReady()
}

// isMemberReady reports whether it is this process that is ready: a service of another fleet may have
// taken the port and answer in its place, until this one finds that out and ends.
func (m *Member) isMemberReady() bool {
	log, err := os.ReadFile(m.LogPath())
	return err == nil && strings.Contains(string(log), " ready=true grpc="+m.GRPC+" http="+m.HTTP)
}

// Of returns the members of one service.
func (f *Fleet) Of(service string) []*Member {
	var found []*Member
	for _, m := range f.Members {
		if m.Service == service {
			found = append(found, m)
		}
	}
	return found
}

// Stop sends SIGTERM to every service, all at once as a cluster does, waits for them, and stops
// NATS.
func (f *Fleet) Stop() {
	f.stop.Do(func() {
		var wait sync.WaitGroup
		for _, m := range f.Members {
			wait.Go(func() { m.Stop(stopGrace) })
		}
		wait.Wait()
		if f.nats != nil {
			f.nats.Stop()
		}
	})
}
