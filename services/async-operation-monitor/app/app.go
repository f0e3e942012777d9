// Package app builds the service async-operation-monitor.
package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/forservice"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/operations"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/server"
)

// Name is the service's name.
const Name = "async-operation-monitor"

// Ports are the service's default ports.
func Ports() service.Ports { return service.Ports{GRPC: 7444, HTTP: 8444} }

// defaultFrequency is Velero 1.18's.
const defaultFrequency = 10 * time.Second

// Config is the service's configuration. The zero value of a field means its default.
type Config struct {
	service.Base
	// Frequency is how often jobs with operations are looked at.
	Frequency time.Duration
	// Plugins bounds what object store plugins may cost.
	Plugins pluginhost.Flags
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.Frequency, "item-operation-sync-frequency", defaultFrequency, "how often jobs that wait for operations are looked at")
	c.Plugins.BindFlags(fs)
}

// App is the service, built and not yet started.
type App struct{ runtime *service.Runtime }

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	err := service.CompleteDurations(service.Duration{Flag: "item-operation-sync-frequency", Value: &c.Frequency, Default: defaultFrequency})
	if err != nil {
		return nil, err
	}
	rt, err := service.New(ctx, c.Base)
	if err != nil {
		return nil, err
	}
	host, err := forservice.New(ctx, c.Base, c.Plugins)
	if err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: --plugin-dir: %w", c.Name, err)
	}
	rt.Go("plugin binaries", host.Run)
	reader, namespace := rt.Manager().GetAPIReader(), c.Options.Namespace
	source := &operations.Source{Reader: reader, Namespace: namespace, Stores: location.New(reader, namespace, location.WithPlugins(host, c.Log, rt.WorkDir()))}
	m := &monitor.Monitor{
		Reader: reader, Client: rt.Manager().GetClient(), Operations: source, Frequency: c.Frequency, Clock: c.Clock, Log: c.Log,
	}
	if err := m.Setup(rt.Manager()); err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	operationv1.RegisterOperationMonitorServiceServer(rt.GRPC(), &server.Server{Operations: source})
	return &App{runtime: rt}, nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }
