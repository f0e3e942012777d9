// Program demo shows the whole loop on a real cluster: seed an estate, back it up, destroy it,
// restore it, compare every object, delete the backup. It types the commands a user would type and stops
// everything it started, also on Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(executeProgram()) }

func executeProgram() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted; everything is stopped")
		}
		_, _ = fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return 0
}

func rootCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "demo", Short: "Back up, destroy, restore and compare a sample estate", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "an existing cluster instead of a control plane of the demo's own")
	cmd.Flags().BoolVar(&o.share, "share", false, "go on although the cluster has velero.io definitions or a Velero server")
	cmd.Flags().StringVar(&o.keep, "keep", "", "keep data and logs in this directory")
	cmd.Flags().StringVar(&o.bin, "bin", defaultBin(), "directory of the built binaries")
	return cmd
}

// options are the flags.
type options struct {
	kubeconfig string
	share      bool
	keep       string
	bin        string
}

// defaultBin is bin/, the parent of the directory that holds this program.
func defaultBin() string {
	path, err := os.Executable()
	if err != nil {
		return "bin"
	}
	return filepath.Dir(filepath.Dir(path))
}
