// Program compare reads live objects into a file and compares the file with live objects later. It
// ends with exit code 0 when all are equal, 1 when something differs, and 2 on an error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
)

var errDiffers = errors.New("objects differ")

func main() { os.Exit(executeProgram()) }

func executeProgram() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := rootCommand().ExecuteContext(ctx); {
	case err == nil:
		return 0
	case errors.Is(err, errDiffers):
		return 1
	default:
		_, _ = fmt.Fprintln(os.Stderr, "compare:", err)
		return 2
	}
}

// compareFlags are common to both verbs.
type compareFlags struct {
	kubeconfig string
	scope      compare.Scope
	file       string
	patience   time.Duration
}

func rootCommand() *cobra.Command {
	var f compareFlags
	root := &cobra.Command{Use: "compare", Short: "Compare live objects before and after", SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; empty means the usual places")
	root.PersistentFlags().StringSliceVar(&f.scope.Namespaces, "namespaces", nil, "every object in these namespaces")
	root.PersistentFlags().StringVar(&f.scope.Selector, "cluster-selector", "", "and cluster-scoped objects with these labels")
	root.PersistentFlags().StringVar(&f.file, "file", "", "the snapshot file (it holds Secrets: keep it private)")
	take := &cobra.Command{
		Use: "snapshot", Short: "Write the live objects to the file", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.runSnapshot(cmd.Context(), cmd.OutOrStdout()) },
	}
	diff := &cobra.Command{
		Use: "diff", Short: "Compare the file with the live objects", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.runDiff(cmd.Context(), cmd.OutOrStdout()) },
	}
	diff.Flags().DurationVar(&f.patience, "wait", 0, "how long controllers may take until everything is equal")
	ignored := &cobra.Command{
		Use: "ignored", Short: "Print the fields that are not compared", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { printIgnored(cmd.OutOrStdout()) },
	}
	root.AddCommand(take, diff, ignored)
	return root
}

func (f *compareFlags) runSnapshot(ctx context.Context, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	snapshot, err := compare.Take(ctx, config, f.scope)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(f.file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	if err := errors.Join(snapshot.Write(file), file.Close()); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "objects: %d of %d kinds\n", len(snapshot.Objects), len(snapshot.Kinds()))
	printExcluded(out, snapshot)
	return nil
}

func (f *compareFlags) runDiff(ctx context.Context, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	file, err := os.Open(f.file)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	before, err := compare.Read(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	report, after, err := compare.DiffLive(ctx, config, f.scope, before, f.patience)
	if err != nil {
		return err
	}
	printIgnored(out)
	printExcluded(out, after)
	_, _ = fmt.Fprint(out, report)
	_, _ = fmt.Fprintf(out, "equal: %d of %d objects (%d with owner references), %d different, %d missing, %d extra\n",
		report.Equal, len(before.Objects), report.Owned, len(report.Different), len(report.Missing), len(report.Extra))
	if !report.Same() {
		return errDiffers
	}
	return nil
}

func printExcluded(out io.Writer, snapshot *compare.Snapshot) {
	count, percent := snapshot.ExcludedCount()
	_, _ = fmt.Fprintf(out, "excluded: %d objects made by controllers under new names (%.1f %%): %v\n", count, percent, snapshot.Excluded)
}

func printIgnored(out io.Writer) {
	for _, rule := range compare.Ignored() {
		_, _ = fmt.Fprintln(out, "ignored:", rule)
	}
}
