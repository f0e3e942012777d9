// Package up runs the whole of Holdfast on one machine: an embedded NATS server and all
// services in one process, through the same code paths as apart: real NATS, real gRPC, real leases.
// Everything they keep is in one data directory.
package up

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
	"github.com/holdfast-io/holdfast/pkg/service/caller"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

const (
	// setupLimit bounds what is done once before the services start.
	setupLimit = 2 * time.Minute
	// stopLimit is how long the services may take to stop: their own limits for handing over, for
	// operations in plugins' processes and for open calls, and a little more.
	stopLimit = 105 * time.Second
)

// Config is what `holdfast up` was asked for. Every field but PluginDir, Features, Getenv and Home
// is required.
type Config struct {
	Kubeconfig  string
	Namespace   string
	DataDir     string
	PluginDir   string
	Runners     int  // backup-runners and restore-runners each, at least 1
	FreePorts   bool // every service on a free port instead of its own
	AllowVelero bool // start beside a live Velero server
	LogLevel    string
	LogFormat   string
	Features    []string

	Log    *slog.Logger
	Out    io.Writer // gets the line that everything is ready, and spans go with OTEL_TRACES_EXPORTER=console
	Clock  clock.WithTicker
	Getenv func(string) string // for OTEL_* variables
	Home   string              // the user's directory, where commands look for a server; empty when there is none
}

// runServices serves until ctx ends and returns nil after an orderly stop: first the services hand over and
// stop, then NATS, then the data directory is unlocked.
func runServices(ctx context.Context, cfg Config, kinds []serviceKind) (err error) {
	dir, err := openDataDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	rest, c, err := connectCluster(cfg)
	if err != nil {
		return err
	}
	if err := prepareCluster(ctx, cfg, dir, rest, c); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting
		}
		return err
	}
	token, err := caller.CreateToken(dir.path)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	defer func() { err = errors.Join(err, caller.RemoveToken(dir.path)) }()
	nats, err := embednats.Start(embednats.Config{Dir: dir.natsDir(), Token: rand.Text()})
	if err != nil {
		return err
	}
	defer nats.Stop()
	members, err := planMembers(cfg, sharedParts{dir: dir, natsURL: nats.URL(), token: token}, kinds)
	if err != nil {
		return err
	}
	defer noteMembers(cfg, dir, members)()
	return serveMembers(ctx, cfg, members, c)
}

// noteMembers notes for the user's commands where the members listen, and returns what takes that
// back. Without notes the commands need --data-dir.
func noteMembers(cfg Config, dir *dataDir, members []serviceMember) (forget func()) {
	addresses := make([]string, len(members))
	for i, m := range members {
		addresses[i] = m.base.Options.GRPCAddress
	}
	if err := command.RecordServer(cfg.Home, dir.path, addresses); err != nil {
		cfg.Log.Warn("Failed to record the addresses of the services; commands need --data-dir", "error", err)
	}
	cfg.Log.Info("Callers need the token in this file", "file", caller.TokenPath(dir.path))
	return func() {
		if err := command.ForgetServer(cfg.Home, dir.path); err != nil {
			cfg.Log.Warn("Failed to remove the recorded addresses of the services; they stay", "error", err)
		}
	}
}

func connectCluster(cfg Config) (*rest.Config, client.Client, error) {
	rest, err := kube.Config(cfg.Kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(rest, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster: %w", telemetry.RedactError(err))
	}
	return rest, c, nil
}

// prepareCluster prepares the cluster; doing it again changes nothing.
func prepareCluster(ctx context.Context, cfg Config, dir *dataDir, rest *rest.Config, c client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, setupLimit)
	defer cancel()
	if !cfg.AllowVelero {
		if err := refuseVelero(ctx, c, cfg.Namespace); err != nil {
			return err
		}
	}
	if err := ensureNamespace(ctx, c, cfg.Namespace); err != nil {
		return err
	}
	if err := crds.Install(ctx, rest); err != nil {
		return err
	}
	return ensureLocation(ctx, c, cfg, dir)
}

// serveMembers runs the services and prints when all of them are ready.
func serveMembers(ctx context.Context, cfg Config, members []serviceMember, c client.Reader) error {
	group := rungroup.New(rungroup.Config{Grace: stopLimit, Clock: cfg.Clock, Log: cfg.Log})
	for _, m := range members {
		group.Go(m.label, m.run)
	}
	group.Go("readiness", func(ctx context.Context) error { return announceReady(ctx, cfg, members, c) })
	if err := group.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
