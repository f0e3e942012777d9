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

func main() {
	service.LimitMemory(memoryLimit)
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports, config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
