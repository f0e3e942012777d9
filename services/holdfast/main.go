// Command holdfast is what a person types: it creates and shows backups and restores, and runs the
// whole server on one machine (`holdfast up`).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cleanup"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/diagnose"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/up"
)

func main() {
	os.Exit(runCommand())
}

func runCommand() int {
	// The first signal begins a graceful shutdown, the second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	g := command.NewGlobal(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, clock.RealClock{})
	g.Live = isTerminal(os.Stdout)
	return cli.Execute(ctx, g, cli.NewCommand(g, up.NewCommand(g), diagnose.NewDoctorCommand(g, up.Ports()), diagnose.NewDebugCommand(g, up.Ports()),
		cleanup.NewCommand(g, up.Ports())), os.Args[1:])
}

// isTerminal reports whether lines written to the file can be rewritten.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
