// Program cluster starts a cluster that stays, for trying things by hand and for tests of the helm
// chart, and stops it again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/node"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func main() { os.Exit(executeProgram()) }

func executeProgram() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	return 0
}

func rootCommand() *cobra.Command {
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
	root.AddCommand(upCommand(&dir), down, images)
	root.AddCommand(nodeCommands()...)
	return root
}

func upCommand(dir *string) *cobra.Command {
	var controlPlane, hold bool
	var images []string
	cmd := &cobra.Command{
		Use: "up", Short: "Start it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case controlPlane:
				if _, err := testbed.Start(cmd.Context(), testbed.Config{Dir: *dir, Log: cmd.OutOrStdout(), Detach: true}); err != nil {
					return err
				}
			case hold:
				return holdNode(cmd, *dir, images)
			default:
				if err := withNode(cmd, *dir, images); err != nil {
					return err
				}
			}
			printReady(cmd, *dir)
			return nil
		},
	}
	cmd.Flags().BoolVar(&controlPlane, "control-plane-only", false, "no node: pods do not run, and it takes neither root nor packages")
	cmd.Flags().BoolVar(&hold, "hold", false, "stay, and take it down at the end of the standard input, at SIGINT and at SIGTERM")
	cmd.Flags().StringSliceVar(&images, "images", nil, "files of images that the node is given")
	cmd.MarkFlagsMutuallyExclusive("control-plane-only", "hold")
	return cmd
}

func printReady(cmd *cobra.Command, dir string) {
	_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s%s/kubeconfig\n", node.ReadyPrefix, dir)
}

// holdNode keeps a cluster until the standard input or the context ends. The reader of the standard output may be gone by then.
func holdNode(cmd *cobra.Command, dir string, images []string) error {
	signal.Ignore(syscall.SIGPIPE)
	lasting := cmd.Context()
	ctx, release := context.WithCancel(lasting)
	go func() {
		_, _ = io.Copy(io.Discard, cmd.InOrStdin())
		release()
	}()
	cmd.SetContext(ctx)
	err := withNode(cmd, dir, images)
	if err == nil {
		printReady(cmd, dir)
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil // the cluster is not wanted any more
	}
	if down := node.Down(context.WithoutCancel(lasting), dir); !errors.Is(down, node.ErrNotRunning) {
		err = errors.Join(err, down)
	}
	return err
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
