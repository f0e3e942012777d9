package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/e2e/harness/node"
)

// nodeCommands returns the commands that run within the namespaces of a node, as node.Config.Program.
func nodeCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "init DIR LINK", Hidden: true, Args: cobra.ExactArgs(2),
			RunE: func(_ *cobra.Command, args []string) error {
				link, err := strconv.Atoi(args[1])
				if err != nil {
					return err
				}
				return node.Init(args[0], link)
			},
		},
		{
			Use: "run DIR LINK", Hidden: true, Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				link, err := strconv.Atoi(args[1])
				if err != nil {
					return err
				}
				return node.Run(cmd.Context(), args[0], link)
			},
		},
	}
}
