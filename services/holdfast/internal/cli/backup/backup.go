// Package backup holds the commands `holdfast backup ...`.
package backup

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
)

// NewCommand returns the group of commands about backups.
func NewCommand(g *global.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "backup", Aliases: []string{"backups"}, Short: "Work with backups"}
	cmd.AddCommand(
		NewCreateCommand(g),
		NewGetCommand(g),
		NewDescribeCommand(g),
		NewLogsCommand(g),
		NewDownloadCommand(g),
		NewCancelCommand(g),
		NewDeleteCommand(g),
	)
	return cmd
}

// find reads one backup; the error names it.
func find(ctx context.Context, c client.Client, namespace, name string) (*velerov1.Backup, error) {
	b := &velerov1.Backup{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, b); err != nil {
		return nil, fmt.Errorf("backup %q: %w", name, err)
	}
	b.SetGroupVersionKind(velerov1.GroupVersion.WithKind("Backup"))
	return b, nil
}

// shownPhase is the phase as people should see it.
func shownPhase(b *velerov1.Backup) velerov1.BackupPhase {
	switch {
	case b.DeletionTimestamp != nil:
		return velerov1.BackupPhaseDeleting
	case b.Status.Phase == "":
		return velerov1.BackupPhaseNew
	default:
		return b.Status.Phase
	}
}

// hasLog reports whether the log of a job in this phase can be fetched, by the
// rule of Velero's CLI: its run is over.
func hasLog(phase velerov1.BackupPhase) bool {
	switch phase {
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed:
		return true
	default:
		return false
	}
}
