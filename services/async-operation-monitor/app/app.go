// Package app builds the service async-operation-monitor.
package app

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/server"
)

// App is the service, built and not yet started.
type App struct{ runtime *service.Runtime }

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	rt, host, err := pluginhost.StartForService(ctx, c.Base, c.Plugins)
	if err != nil {
		return nil, err
	}
	if err := wireParts(ctx, rt, host, &c); err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	return &App{runtime: rt}, nil
}

func wireParts(ctx context.Context, rt *service.Runtime, host *pluginhost.Host, c *Config) error {
	mgr, namespace := rt.Manager(), c.Options.Namespace
	plugins := host.Operations(context.WithoutCancel(ctx), c.Log) // ended by Close
	peers := claim.NewPeers(mgr.GetAPIReader(), namespace, c.Clock)
	homes := operationhome.NewClient(peers, rt.Dial, nil)
	actions := &operation.Actions{Homes: homes, Shared: &podvolume.Operations{
		API: podvolume.API{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Clock: c.Clock, Log: c.Log},
		Others: &csisnapshot.Operations{
			API:    csisnapshot.API{Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Clock: c.Clock, Log: c.Log},
			Others: plugins,
		},
	}}
	source := &server.Source{
		Reader: mgr.GetAPIReader(), Namespace: namespace, Stores: location.New(mgr.GetAPIReader(), namespace, location.WithPlugins(host, c.Log, rt.WorkDir()), location.WithMetrics(rt.Registry(), c.Clock)),
		Clock: c.Clock, Actions: actions,
	}
	var m *monitor.Monitor
	counts, err := poll.NewCounters(rt.Registry(), func() int { return m.Open() })
	if err != nil {
		return err
	}
	poller := poll.New(ctx, poll.Config{
		Actions: actions, Metrics: counts, Clock: c.Clock, Log: c.Log, Frequency: c.Frequency, Frequencies: c.frequencies, Timeouts: c.timeouts,
		Grace: c.Grace, Stall: c.Stall,
	})
	m = monitor.New(monitor.Config{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Namespace: namespace, Files: source, Poller: poller, Bus: rt.Fabric(),
		Events: mgr.GetEventRecorder(Name), Frequency: c.Frequency, Clock: c.Clock, Log: c.Log,
	})
	source.Memory = m
	if err := m.Setup(mgr); err != nil {
		return err
	}
	operationv1.RegisterOperationMonitorServiceServer(rt.GRPC(), &server.Server{Operations: source, Clock: c.Clock})
	rt.Go("operations", m.Serve)
	rt.Go("instances", peers.Run)
	rt.GoLast("calls about operations", func(ctx context.Context) error {
		<-ctx.Done()
		poller.Close()
		homes.Close()
		plugins.Close()
		return nil
	})
	return nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }
