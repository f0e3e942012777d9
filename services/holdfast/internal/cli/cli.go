// Package cli puts the commands of `holdfast` together, and holds those that stand alone: plugin, crd
// and version.
package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/backup"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/operation"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/queue"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/restore"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/search"
)

// NewCommand returns the whole tree of commands; more are the commands that another package brings.
func NewCommand(g *command.Global, more ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "holdfast",
		Short:         "Back up and restore Kubernetes clusters",
		Version:       telemetry.BuildInfo(),
		SilenceErrors: true,
		SilenceUsage:  true,
		// A flag before the name of a command is that of the command before it: --namespace is the server's there, also
		// for a command that has another flag of that name.
		TraverseChildren: true,
	}
	cmd.SetIn(g.In)
	cmd.SetOut(g.Out)
	cmd.SetErr(g.ErrOut)
	g.BindFlags(cmd.PersistentFlags())
	cmd.AddCommand(backup.NewCommand(g), restore.NewCommand(g), queue.NewCommand(g), operation.NewCommand(g), newPluginCommand(g), newCRDCommand(g), newVersionCommand(g), search.NewSearchCommand(g), search.NewHistoryCommand(g))
	cmd.AddCommand(more...)
	return cmd
}

// Execute runs a command line and returns the exit code. Errors go to Err.
func Execute(ctx context.Context, g *command.Global, cmd *cobra.Command, args []string) int {
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err != nil && !command.IsPrinted(err) {
		_, _ = fmt.Fprintf(g.ErrOut, "holdfast: %s\n", command.FormatLines(err.Error()))
	}
	return command.ExitCode(err)
}
