// Command deletion deletes backups with their data: on request, and when their time is over.
package main

import (
	"context"
	"os"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/deletion/app"
)

func main() {
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports(), config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}
