// Package restore holds the commands `holdfast restore ...`.
package restore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// NewCommand returns the group of commands about restores.
func NewCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "restore", Aliases: []string{"restores"}, Short: "Work with restores"}
	kind := newKind()
	cmd.AddCommand(
		NewCreateCommand(g, kind),
		NewPlanCommand(g, kind),
		kind.NewGetCommand(g),
		kind.NewDescribeCommand(g),
		kind.NewLogsCommand(g),
		kind.NewCancelCommand(g),
		kind.NewDeleteCommand(g),
	)
	return cmd
}

// newKind returns what the commands about restores have of their own.
func newKind() *job.Kind[*velerov1.Restore] {
	return &job.Kind[*velerov1.Restore]{
		Name:    "Restore",
		New:     func() *velerov1.Restore { return &velerov1.Restore{} },
		NewList: func() client.ObjectList { return &velerov1.RestoreList{} },
		Status:  statusOf,
		Columns: tableColumns(), WideColumns: []string{"ITEMS"},
		Row:      tableRow,
		Compare:  compareRestores,
		Location: locationOf,
		Files: job.FileKinds{
			Log: velerov1.DownloadTargetKindRestoreLog, Results: velerov1.DownloadTargetKindRestoreResults,
			Volumes: velerov1.DownloadTargetKindRestoreVolumeInfo, Resources: velerov1.DownloadTargetKindRestoreResourceList,
		},
		Live:        &job.LiveLog{Remote: command.RemoteRestores(), Read: readLiveLog},
		Describe:    describeRestore,
		CancelShort: "Stop restores that wait or run; they end as Failed, and what they restored stays",
		DeleteShort: "Delete the records of restores; what they restored stays",
		DeleteWait:  "wait until the files of the restores are gone too",
		Delete:      deleteRestore,
	}
}

func statusOf(r *velerov1.Restore) job.Status {
	s := &r.Status
	out := job.Status{
		Phase: velerov1.BackupPhase(s.Phase), Stage: mark.RestoreStage(r), FailureReason: s.FailureReason, ValidationErrors: s.ValidationErrors,
		Errors: s.Errors, Warnings: s.Warnings,
	}
	if s.Progress != nil {
		out.Done, out.Total = s.Progress.ItemsRestored, s.Progress.TotalItems
	}
	return out
}

// locationOf returns the storage location of a restore's files, or nothing when it is the one of a backup that
// is gone: then only the location's authorities are not known.
func locationOf(ctx context.Context, c client.Client, r *velerov1.Restore) (string, error) {
	if at := mark.FilesLocation(r); at != "" {
		return at, nil
	}
	b := &velerov1.Backup{}
	err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.BackupName}, b)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("backup %q of restore %q: %w", r.Spec.BackupName, r.Name, err)
	}
	return b.Spec.StorageLocation, nil
}

func tableColumns() []string {
	return []string{"NAME", "BACKUP", "STATUS", "STARTED", "COMPLETED", "ERRORS", "WARNINGS", "CREATED", "SELECTOR"}
}

func compareRestores(a, b *velerov1.Restore) int { return cmp.Compare(a.Name, b.Name) }

func tableRow(r *velerov1.Restore, _ time.Time) []string {
	phase := job.ShownPhase(r, statusOf(r).Phase)
	return []string{
		r.Name, r.Spec.BackupName, string(phase), command.FormatTime(r.Status.StartTimestamp), command.FormatTime(r.Status.CompletionTimestamp),
		strconv.Itoa(r.Status.Errors), strconv.Itoa(r.Status.Warnings), command.FormatTime(&r.CreationTimestamp),
		command.FormatSelector(r.Spec.LabelSelector, r.Spec.OrLabelSelectors), statusOf(r).Items(),
	}
}

// deleteRestore deletes the record of a restore; the server's finalizer removes its files first.
func deleteRestore(ctx context.Context, s *job.Session, r *velerov1.Restore, wait bool) error {
	if err := s.Client.Delete(ctx, r, client.Preconditions{UID: &r.UID}); err != nil {
		return fmt.Errorf("delete restore %q: %w", r.Name, err)
	}
	s.Printf("Restore %q was deleted.\n", r.Name)
	if !wait {
		return nil
	}
	name, uid := r.Name, r.UID
	err := command.WaitUntil(ctx, s.Client, s.Global.Clock, r, func() (bool, error) { return r.UID != uid, nil })
	switch {
	case ctx.Err() != nil:
		return &command.ExitError{Code: command.CodeInterrupted, Err: fmt.Errorf("no longer waiting; the deletion of restore %q continues", name)}
	case apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}
