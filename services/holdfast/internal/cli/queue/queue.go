// Package queue holds the commands `holdfast queue ...`: what runs, what waits, and why.
package queue

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewCommand returns the group of commands about the queue.
func NewCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "See what runs, what waits, and why"}
	cmd.AddCommand(NewGetCommand(g), NewExplainCommand(g), NewWatchCommand(g))
	return cmd
}

// Options are what the commands share.
type Options struct {
	*command.Global
	Remote command.RemoteOptions
	Output command.Output

	namespace string
	api       queuev1.QueueServiceClient
}

func newOptions(g *command.Global) Options { return Options{Global: g, Remote: command.RemoteQueue()} }

// BindFlags adds the shared flags.
func (o *Options) BindFlags(fs *pflag.FlagSet) {
	o.Output.BindFlag(fs)
	o.Remote.BindFlags(fs)
}

// withConnection connects for the time of run.
func (o *Options) withConnection(run func() error) error {
	namespace, err := o.ServerNamespace()
	if err != nil {
		return err
	}
	conn, err := o.Remote.Connect(o.Global)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	o.namespace, o.api = namespace, queuev1.NewQueueServiceClient(conn)
	return run()
}

// checkNamespace refuses the queue of another server namespace.
func (o *Options) checkNamespace(e *queuev1.QueueEntry) error {
	if e.GetNamespace() != o.namespace {
		return fmt.Errorf("%s serves namespace %s, not %s: give --namespace, or the address of the other service", o.Remote.Address, e.GetNamespace(), o.namespace)
	}
	return nil
}
