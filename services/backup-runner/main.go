// Command backup-runner collects what Backups select and writes it into the bucket.
package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/app"
)

// softMemoryLimit makes the garbage collector work harder before the process
// outgrows what it promises; GOMEMLIMIT overrides it.
const softMemoryLimit = 96 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softMemoryLimit)
	}
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports, config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
