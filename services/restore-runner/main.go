// Command restore-runner carries out restores: it creates the objects of a backup in the cluster,
// in an order that respects who needs whom.
package main

import (
	"context"
	"os"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/restore-runner/app"
)

// memoryLimit is what is left of the 96 MiB a runner may take: the code itself, which the limit
// does not count, takes about 30 MiB of them.
const memoryLimit = 64 << 20

// garbagePercent is GOGC: how much garbage the heap may hold beside live objects.
const garbagePercent = 60

func main() {
	service.LimitMemory(memoryLimit)
	service.CollectGarbageAt(garbagePercent)
	var config app.Config
	os.Exit(service.Main(app.Name, service.Ports{GRPC: app.GRPCPort, HTTP: app.HTTPPort}, config.BindFlags,
		func(ctx context.Context, base service.Base) (service.Runner, error) {
			config.Base = base
			return app.New(ctx, config)
		}))
}
