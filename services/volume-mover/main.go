// Command volume-mover moves the data of volumes between volumes and the kopia repositories of backup
// locations. Without a subcommand it is the service that starts a mover Pod for each request;
// `volume-mover move` is what a mover Pod runs.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/volume-mover/app"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/command"
)

// memoryLimit is what the service promises to work in.
const memoryLimit = 128 << 20

// errSignal is why a transfer is canceled.
var errSignal = errors.New("the process got a signal to stop")

func main() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(executeCommand())
	}
	service.LimitMemory(memoryLimit)
	var config app.Config
	os.Exit(service.Main(app.Name, app.Ports(), config.BindFlags, func(ctx context.Context, base service.Base) (service.Runner, error) {
		config.Base = base
		return app.New(ctx, config)
	}))
}

// executeCommand runs the subcommand and returns its exit code.
func executeCommand() int {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // the second one ends the process
		cancel(errSignal)
	}()
	return command.Execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
