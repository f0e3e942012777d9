// Command queue-scheduler validates backups and restores, decides which may run and when, and sends
// them to the runners.
package main

import (
	"context"
	"os"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/app"
)

// garbagePercent keeps thousands of queued and ended backups within 96 MiB.
const garbagePercent = 40

func main() {
	var config app.Config
	service.CollectGarbageAt(garbagePercent)
	os.Exit(service.Main(app.Name, app.Ports(), config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
