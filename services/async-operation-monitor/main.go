// Command async-operation-monitor follows what plugins go on doing after an item was backed up or
// restored, and moves jobs on when nothing is left.
package main

import (
	"context"
	"os"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/app"
)

func main() {
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports(), config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
