// Package backup holds the commands `holdfast backup ...`.
package backup

import (
	"cmp"
	"context"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// NewCommand returns the group of commands about backups.
func NewCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "backup", Aliases: []string{"backups"}, Short: "Work with backups"}
	kind := newKind()
	cmd.AddCommand(
		NewCreateCommand(g, kind),
		NewPlanCommand(g),
		kind.NewGetCommand(g),
		kind.NewDescribeCommand(g),
		kind.NewLogsCommand(g),
		NewDownloadCommand(g, kind),
		kind.NewCancelCommand(g),
		kind.NewDeleteCommand(g),
		NewItemsCommand(g, kind),
		NewCatCommand(g, kind),
		NewTreeCommand(g, kind),
		NewDiffCommand(g, kind),
		NewRelatedCommand(g, kind),
		NewVerifyCommand(g, kind),
		NewFilesCommand(g, kind),
	)
	return cmd
}

// newKind returns what the commands about backups have of their own.
func newKind() *job.Kind[*velerov1.Backup] {
	d := &describer{remote: command.RemoteQueue()}
	return &job.Kind[*velerov1.Backup]{
		Name:    "Backup",
		New:     func() *velerov1.Backup { return &velerov1.Backup{} },
		NewList: func() client.ObjectList { return &velerov1.BackupList{} },
		Status:  backupStatus,
		Columns: tableColumns(), WideColumns: []string{"COMPLETED", "ITEMS"},
		Row:      tableRow,
		Compare:  compareBackups,
		Location: locationOf,
		Files: job.FileKinds{
			Log: velerov1.DownloadTargetKindBackupLog, Results: velerov1.DownloadTargetKindBackupResults,
			Volumes: velerov1.DownloadTargetKindBackupVolumeInfos, Resources: velerov1.DownloadTargetKindBackupResourceList,
		},
		Describe:      d.describeBackup,
		DescribeFlags: d.remote.BindFlags,
		CheckDescribe: d.checkFlags,
		CancelShort:   "Stop backups that wait or run; they end as Failed",
		DeleteShort:   "Delete backups with everything stored for them",
		DeleteWait:    "wait until everything is gone",
		Delete:        requestDeletion,
	}
}

func backupStatus(b *velerov1.Backup) job.Status {
	s := &b.Status
	out := job.Status{
		Phase: s.Phase, Stage: mark.BackupStage(b), FailureReason: s.FailureReason, ValidationErrors: s.ValidationErrors,
		Errors: s.Errors, Warnings: s.Warnings,
	}
	if s.Progress != nil {
		out.Done, out.Total = s.Progress.ItemsBackedUp, s.Progress.TotalItems
	}
	return out
}

func locationOf(_ context.Context, _ client.Client, b *velerov1.Backup) (string, error) {
	return b.Spec.StorageLocation, nil
}

// bySchedule matches the names of backups made by a schedule.
var bySchedule = regexp.MustCompile(`^(.*)-\d{14}$`)

// compareBackups orders by name; backups of one schedule come newest first.
func compareBackups(a, b *velerov1.Backup) int {
	nameA, nameB := bySchedule.FindStringSubmatch(a.Name), bySchedule.FindStringSubmatch(b.Name)
	if nameA != nil && nameB != nil && nameA[1] == nameB[1] {
		return cmp.Compare(b.Name, a.Name)
	}
	return cmp.Compare(a.Name, b.Name)
}

func tableColumns() []string {
	return []string{"NAME", "STATUS", "ERRORS", "WARNINGS", "CREATED", "EXPIRES", "STORAGE LOCATION", "QUEUE POSITION", "SELECTOR"}
}

func tableRow(b *velerov1.Backup, now time.Time) []string {
	position := ""
	if b.Status.QueuePosition > 0 {
		position = strconv.Itoa(b.Status.QueuePosition)
	}
	return []string{
		b.Name, string(job.ShownPhase(b, b.Status.Phase)), strconv.Itoa(b.Status.Errors), strconv.Itoa(b.Status.Warnings),
		command.FormatTime(b.Status.StartTimestamp), command.FormatUntil(expirationOf(b), now), b.Spec.StorageLocation, position,
		command.FormatSelector(b.Spec.LabelSelector, b.Spec.OrLabelSelectors), command.FormatTime(b.Status.CompletionTimestamp), backupStatus(b).Items(),
	}
}

// expirationOf is the one in the status or, before there is one, what follows from the TTL.
func expirationOf(b *velerov1.Backup) time.Time {
	switch {
	case b.Status.Expiration != nil:
		return b.Status.Expiration.Time
	case b.Spec.TTL.Duration > 0:
		return b.CreationTimestamp.Add(b.Spec.TTL.Duration)
	default:
		return time.Time{}
	}
}
