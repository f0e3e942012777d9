// Program cluster starts a control plane that stays, for trying things by hand, and stops it again.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func main() { os.Exit(execute()) }

func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	return 0
}

func command() *cobra.Command {
	var dir string
	root := &cobra.Command{Use: "cluster", Short: "A control plane on loopback that stays", SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().StringVar(&dir, "dir", ".out/cluster", "directory of its data, logs and kubeconfig")
	up := &cobra.Command{
		Use: "up", Short: "Start it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := testbed.Start(cmd.Context(), testbed.Config{Dir: dir, Log: cmd.OutOrStdout(), Detach: true})
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s\n", cluster.Kubeconfig())
			return nil
		},
	}
	down := &cobra.Command{
		Use: "down", Short: "Stop it and remove its data", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return testbed.StopDetached(dir) },
	}
	root.AddCommand(up, down)
	return root
}
