// Command manifest-indexer is the catalogue of backup locations: it validates them, finds the
// backups they hold, and answers requests for their content.
package main

import (
	"context"
	"os"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/app"
)

func main() {
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports(), config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
