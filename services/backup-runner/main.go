// Command backup-runner collects what Backups select and writes it into the bucket.
package main

import (
	"context"
	"os"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/app"
)

// memoryLimit is what a runner promises to work in.
const memoryLimit = 96 << 20

// garbagePercent is GOGC: how much garbage the heap may hold beside live objects. Pages of lists
// are large, since an API server takes longer for many small ones: most of the heap is garbage at
// once.
const garbagePercent = 40

func main() {
	service.LimitMemory(memoryLimit)
	service.CollectGarbageAt(garbagePercent)
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports, config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
