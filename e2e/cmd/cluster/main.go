// Program cluster starts a cluster that stays, for trying things by hand and for tests of the helm
// chart, and stops it again.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/node"
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
	root := &cobra.Command{Use: "cluster", Short: "A cluster on this machine that stays", SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().StringVar(&dir, "dir", ".out/cluster", "directory of its data, logs and kubeconfig")
	down := &cobra.Command{
		Use: "down", Short: "Stop it and remove its data", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := node.Down(cmd.Context(), dir); !errors.Is(err, node.ErrNotRunning) {
				return err
			}
			return testbed.StopDetached(dir)
		},
	}
	images := &cobra.Command{
		Use: "import FILE...", Short: "Give its node images", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return importImages(cmd, dir, args) },
	}
	root.AddCommand(up(&dir), down, images)
	root.AddCommand(inside()...)
	return root
}

func up(dir *string) *cobra.Command {
	var controlPlane bool
	var images []string
	cmd := &cobra.Command{
		Use: "up", Short: "Start it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if controlPlane {
				if _, err := testbed.Start(cmd.Context(), testbed.Config{Dir: *dir, Log: cmd.OutOrStdout(), Detach: true}); err != nil {
					return err
				}
			} else if err := withNode(cmd, *dir, images); err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "export KUBECONFIG=%s/kubeconfig\n", *dir)
			return nil
		},
	}
	cmd.Flags().BoolVar(&controlPlane, "control-plane-only", false, "no node: pods do not run, and it takes neither root nor packages")
	cmd.Flags().StringSliceVar(&images, "images", nil, "files of images that the node is given")
	return cmd
}

func withNode(cmd *cobra.Command, dir string, images []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := node.Up(cmd.Context(), node.Config{Dir: dir, Log: cmd.OutOrStdout(), Program: program}); err != nil {
		return err
	}
	if len(images) == 0 {
		return nil
	}
	return importImages(cmd, dir, images)
}

// importImages also gives the images the tag that the chart asks for, and writes values for the
// chart.
func importImages(cmd *cobra.Command, dir string, images []string) error {
	if err := node.Import(cmd.Context(), dir, images...); err != nil {
		return err
	}
	tag, err := chart.AppVersion()
	if err != nil {
		return err
	}
	if err := node.Tag(cmd.Context(), dir, tag, images...); err != nil {
		return err
	}
	values, err := node.WriteValues(dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d images are there, with the tag that the chart asks for; values for it: %s\n", len(images), values)
	return err
}
