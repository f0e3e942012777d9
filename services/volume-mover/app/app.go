// Package app builds the service volume-mover, which starts a mover Pod for each PodVolumeBackup and
// PodVolumeRestore and writes down what became of it.
//
// One replica at a time does this (a duty). All state is in the requests and the Pods, so that the next
// one goes on where it stands.
package app

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/service"
)

// App is the service, built and not yet started.
type App struct{ runtime *service.Runtime }

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	rt, err := service.New(ctx, c.Base)
	if err != nil {
		return nil, err
	}
	return &App{runtime: rt}, nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }
