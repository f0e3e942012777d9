package backup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// PlanOptions are the flags of `backup plan`.
type PlanOptions struct {
	CreateOptions
	Remote command.RemoteOptions
	// Runner is the address of backup-runner.
	Runner string
	All    bool
	Output command.Output
}

// NewPlanCommand returns `backup plan`.
func NewPlanCommand(g *command.Global) *cobra.Command {
	o := &PlanOptions{CreateOptions: CreateOptions{Creation: job.NewCreation(g, "backup")}, Remote: command.RemoteQueue()}
	return job.Creating(&cobra.Command{
		Use:   "plan [NAME]",
		Short: "Show what a backup would hold, and store that as a plan",
		Long: `Makes the lists of a backup with the flags of backup create, and stores no object:
the cluster stays as it is, and the bucket gets the plan alone.
backup create --from-plan ID executes it.`,
		Example: `  holdfast backup plan --include-namespaces web,web-db
  holdfast backup plan nightly-test --from-schedule nightly --all
  holdfast backup plan --selector app=web -o json`,
	}, o)
}

// BindFlags adds the command's flags.
func (o *PlanOptions) BindFlags(fs *pflag.FlagSet) {
	o.bindSpecFlags(fs)
	o.BindMetaFlags(fs)
	fs.BoolVar(&o.All, "all", false, "list every object")
	fs.StringVar(&o.Runner, runnerFlag, command.BackupsAddress, "host:port of the service that plans backups; in a cluster, forward the port first")
	o.Remote.BindFlags(fs)
	o.Output.BindFlag(fs)
}

// Complete fills in what follows from the arguments.
func (o *PlanOptions) Complete(args []string) error { return o.completeSpec(args) }

// Run makes the dry run and prints it.
func (o *PlanOptions) Run(ctx context.Context) error {
	b, err := o.Build(ctx)
	if err != nil {
		return err
	}
	checked, err := o.checkBackup(ctx, b)
	if err != nil {
		return o.Remote.Explain(err)
	}
	plan, err := o.planBackup(ctx, checked)
	if err != nil {
		return o.runnerOptions().Explain(err)
	}
	if !o.Output.IsText() {
		return o.Output.Print(o.Global.Out, plan)
	}
	return plan.writeText(o)
}

// runnerFlag is the flag of backup-runner's address.
const runnerFlag = "backup-address"

func (o *PlanOptions) runnerOptions() *command.RemoteOptions {
	return o.Remote.Beside(runnerFlag, "backup-runner", o.Runner)
}

// checkBackup has queue-scheduler validate and complete the backup.
func (o *PlanOptions) checkBackup(ctx context.Context, b *velerov1.Backup) (*queuev1.CheckBackupResponse, error) {
	spec, err := job.EncodeSpec(&b.Spec)
	if err != nil {
		return nil, err
	}
	conn, err := o.Remote.Connect(o.Global)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	return queuev1.NewQueueServiceClient(conn).CheckBackup(ctx, &queuev1.CheckBackupRequest{Name: b.Name, Labels: b.Labels, Annotations: b.Annotations, Spec: spec})
}

// planBackup has backup-runner make the dry run.
func (o *PlanOptions) planBackup(ctx context.Context, checked *queuev1.CheckBackupResponse) (*Plan, error) {
	conn, err := o.runnerOptions().Connect(o.Global)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	notice := command.NewNotice(o.Global)
	defer notice.End()
	req := &backupv1.PlanBackupRequest{Backup: checked.GetBackup(), Namespaces: checked.GetNamespaces(), Objects: o.All}
	if text := checked.GetMessage(); text != "" {
		req.Messages = append(req.Messages, "it would wait: "+text)
	}
	stream, err := backupv1.NewBackupServiceClient(conn).PlanBackup(ctx, req)
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errors.New("the service ended the dry run without a result")
		}
		switch {
		case err != nil:
			return nil, err
		case m.GetProgress() != nil:
			notice.Show(fmt.Sprintf("%d objects found, still listing", m.GetProgress().GetObjects()))
		case m.GetObject() != nil:
			plan.Objects = append(plan.Objects, storedplan.RowOf(m.GetObject()))
		case m.GetSummary() != nil:
			return plan, plan.takeSummary(m.GetSummary())
		}
	}
}
