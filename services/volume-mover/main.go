// Command volume-mover moves the data of volumes between volumes and the kopia repositories of backup
// locations: `volume-mover move` is what a mover Pod runs.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfast-io/holdfast/services/volume-mover/app"
)

// errSignal is why a transfer is canceled.
var errSignal = errors.New("the process was told to stop")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // the second one ends the process
		cancel(errSignal)
	}()
	os.Exit(app.Execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
