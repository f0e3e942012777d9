// Package plugin holds the commands `holdfast plugin ...`.
package plugin

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewCommand returns the group of commands about plugins.
func NewCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "See what plugin binaries serve"}
	cmd.AddCommand(NewGetCommand(g))
	return cmd
}
