package restore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// PlanOptions are the flags of `restore plan`.
type PlanOptions struct {
	CreateOptions
	Remote       command.RemoteOptions
	ServerDryRun bool
	All          bool
}

// NewPlanCommand returns `restore plan`.
func NewPlanCommand(g *command.Global, kind *job.Kind[*velerov1.Restore]) *cobra.Command {
	o := &PlanOptions{CreateOptions: CreateOptions{Creation: job.NewCreation(g, "restore"), kind: kind}, Remote: command.RemoteRestores()}
	cmd := newCreatingCommand(g, o, &o.CreateOptions, &cobra.Command{
		Use:   "plan --from-backup BACKUP",
		Short: "Find out what a restore would do, and change nothing",
		Long: `Finds out what a restore with the same flags would do to each object, and why. Nothing is
changed; the plan is stored beside the backup, and ` + "`holdfast restore create --from-plan ID`" + ` executes it.

The summary names the objects that would not come back; --all, -o wide, json and yaml name all.`,
		Example: `  holdfast restore plan --from-backup first
  holdfast restore plan --from-backup first --include-namespaces web --existing-resource-policy update --all
  holdfast restore plan --from-backup first --server-dry-run -o json`,
	})
	cmd.Args = cobra.NoArgs
	return cmd
}

// BindFlags adds the flags, among them those of `restore create`.
func (o *PlanOptions) BindFlags(fs *pflag.FlagSet) {
	o.CreateOptions.BindFlags(fs)
	fs.BoolVar(&o.All, "all", false, "name all objects, not only those that would not come back")
	fs.BoolVar(&o.ServerDryRun, "server-dry-run", false, "send creations to the API server with dryRun=All, to find what admission refuses")
	o.Remote.BindFlags(fs)
	_ = fs.MarkHidden("wait")   // the flag exists
	_ = fs.MarkHidden("labels") // the flag exists
}

// Run makes the plan and prints it.
func (o *PlanOptions) Run(ctx context.Context) error {
	conn, err := o.Remote.Connect(o.Global)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	return o.Remote.Explain(o.printPlan(ctx, restorev1.NewRestoreServiceClient(conn)))
}

func (o *PlanOptions) printPlan(ctx context.Context, api restorev1.RestoreServiceClient) error {
	spec, err := job.EncodeSpec(&o.Spec)
	if err != nil {
		return err
	}
	notice := command.NewNotice(o.Global)
	defer notice.End()
	stream, err := api.PlanRestore(ctx, &restorev1.PlanRestoreRequest{Annotations: o.Annotations, Spec: spec, ServerDryRun: o.ServerDryRun, Objects: true})
	if err != nil {
		return err
	}
	printer := job.PlanPrinter{Global: o.Global, Output: &o.Output, All: o.All, Execute: "holdfast restore create --from-plan"}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			notice.End()
			return printer.Print()
		}
		if err != nil {
			return err
		}
		switch part := m.GetPart().(type) {
		case *restorev1.PlanRestoreResponse_Progress:
			notice.Show(fmt.Sprintf("%d of %d objects planned", part.Progress.GetItemsPlanned(), part.Progress.GetTotalItems()))
		case *restorev1.PlanRestoreResponse_Plan:
			if err := printer.Begin(part.Plan); err != nil {
				return err
			}
		case *restorev1.PlanRestoreResponse_Object:
			printer.Add(part.Object)
		}
	}
}
