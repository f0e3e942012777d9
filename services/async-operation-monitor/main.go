// Command async-operation-monitor follows what plugins continue to do after an item was backed up or
// restored, and moves jobs on when nothing is left.
package main

import (
	"context"
	"os"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/app"
)

// memoryLimit is what it promises to work in.
const memoryLimit = 128 << 20

// garbagePercent is how much garbage the heap may hold beside what lives. Beside 10,000 open operations
// 27 MB live; with Go's 100 the process took up to 117 of the 128 MiB that it promises to work in.
const garbagePercent = 50

func main() {
	service.LimitMemory(memoryLimit)
	service.CollectGarbageAt(garbagePercent)
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports(), config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
