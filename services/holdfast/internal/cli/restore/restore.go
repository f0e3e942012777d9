// Package restore holds the commands `holdfast restore ...`.
package restore

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
)

// deleting is what people see of a Restore that is being removed; the wire has no
// such phase.
const deleting velerov1.RestorePhase = "Deleting"

// NewCommand returns the group of commands about restores.
func NewCommand(g *global.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "restore", Aliases: []string{"restores"}, Short: "Work with restores"}
	cmd.AddCommand(
		NewCreateCommand(g),
		NewGetCommand(g),
		NewDescribeCommand(g),
		NewLogsCommand(g),
		NewCancelCommand(g),
		NewDeleteCommand(g),
	)
	return cmd
}

// find reads one restore; the error names it.
func find(ctx context.Context, c client.Client, namespace, name string) (*velerov1.Restore, error) {
	r := &velerov1.Restore{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, r); err != nil {
		return nil, fmt.Errorf("restore %q: %w", name, err)
	}
	r.SetGroupVersionKind(velerov1.GroupVersion.WithKind("Restore"))
	return r, nil
}

// location returns the storage location of a restore's backup, or nothing when
// the backup is gone: then only the location's authorities are not known.
func location(ctx context.Context, c client.Client, r *velerov1.Restore) (string, error) {
	b := &velerov1.Backup{}
	err := c.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.BackupName}, b)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("backup %q of restore %q: %w", r.Spec.BackupName, r.Name, err)
	}
	return b.Spec.StorageLocation, nil
}

// shownPhase is the phase as people should see it.
func shownPhase(r *velerov1.Restore) velerov1.RestorePhase {
	switch {
	case r.DeletionTimestamp != nil:
		return deleting
	case r.Status.Phase == "":
		return velerov1.RestorePhaseNew
	default:
		return r.Status.Phase
	}
}

// hasLog reports whether the log of a restore in this phase can be fetched.
func hasLog(phase velerov1.RestorePhase) bool {
	switch phase {
	case velerov1.RestorePhaseCompleted, velerov1.RestorePhasePartiallyFailed, velerov1.RestorePhaseFailed,
		velerov1.RestorePhaseWaitingForPluginOperations, velerov1.RestorePhaseWaitingForPluginOperationsPartiallyFailed:
		return true
	default:
		return false
	}
}
