// Package backup holds the commands `holdfast backup ...`.
package backup

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/remote"
)

// NewCommand returns the group of commands about backups.
func NewCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "backup", Aliases: []string{"backups"}, Short: "Work with backups"}
	kind := newKind()
	cmd.AddCommand(
		NewCreateCommand(g, kind),
		kind.NewGetCommand(g),
		kind.NewDescribeCommand(g),
		kind.NewLogsCommand(g),
		NewDownloadCommand(g, kind),
		kind.NewCancelCommand(g),
		kind.NewDeleteCommand(g),
	)
	return cmd
}

// newKind returns what the commands about backups have of their own.
func newKind() *job.Kind[*velerov1.Backup] {
	d := &describer{remote: remote.Queue()}
	return &job.Kind[*velerov1.Backup]{
		Name:    "Backup",
		New:     func() *velerov1.Backup { return &velerov1.Backup{} },
		NewList: func() client.ObjectList { return &velerov1.BackupList{} },
		Status:  status,
		Columns: columns(), WideColumns: []string{"COMPLETED", "ITEMS"},
		Row:      row,
		Compare:  compare,
		Location: location,
		Files: job.FileKinds{
			Log: velerov1.DownloadTargetKindBackupLog, Results: velerov1.DownloadTargetKindBackupResults,
			Volumes: velerov1.DownloadTargetKindBackupVolumeInfos, Resources: velerov1.DownloadTargetKindBackupResourceList,
		},
		Describe:      d.describe,
		DescribeFlags: d.remote.BindFlags,
		CheckDescribe: d.check,
		CancelShort:   "Stop backups that wait or run; they end as Failed",
		DeleteShort:   "Delete backups with everything stored for them",
		DeleteWait:    "wait until everything is gone",
		Delete:        remove,
	}
}

func status(b *velerov1.Backup) job.Status {
	s := &b.Status
	out := job.Status{
		Phase: s.Phase, Stage: cancel.BackupStage(b), FailureReason: s.FailureReason, ValidationErrors: s.ValidationErrors,
		Errors: s.Errors, Warnings: s.Warnings,
	}
	if s.Progress != nil {
		out.Done, out.Total = s.Progress.ItemsBackedUp, s.Progress.TotalItems
	}
	return out
}

func location(_ context.Context, _ client.Client, b *velerov1.Backup) (string, error) {
	return b.Spec.StorageLocation, nil
}
