package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/follow"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/pick"
)

// DeleteOptions are the flags of `backup delete`.
type DeleteOptions struct {
	*global.Global
	Pick pick.Options
	Wait bool
}

// NewDeleteCommand returns `backup delete`.
func NewDeleteCommand(g *global.Global) *cobra.Command {
	o := &DeleteOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "delete [NAME...]",
		Short: "Delete backups with everything stored for them",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Pick.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.Pick.BindFlags(cmd.Flags(), "backups")
	cmd.Flags().BoolVarP(&o.Wait, "wait", "w", false, "wait until everything is gone")
	return cmd
}

// Run requests the deletion of each backup; with --wait it reports the first
// that could not be deleted after trying all.
func (o *DeleteOptions) Run(ctx context.Context) error {
	c, namespace, err := o.Client()
	if err != nil {
		return err
	}
	list := &velerov1.BackupList{}
	names, err := o.Pick.Names(ctx, c, namespace, list)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		o.Printf("No backups in namespace %q match.\n", namespace)
		return nil
	}
	if !o.Pick.Confirmed(o.Global, "backups", names) {
		o.Printf("Nothing was deleted.\n")
		return nil
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, o.delete(ctx, c, namespace, name))
	}
	return errors.Join(errs...)
}

func (o *DeleteOptions) delete(ctx context.Context, c client.WithWatch, namespace, name string) error {
	b, err := find(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	request := &velerov1.DeleteBackupRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    namespace,
			GenerateName: b.Name + "-",
			Labels: map[string]string{
				velerov1.LabelBackupName: velerov1.LabelValue(b.Name),
				velerov1.LabelBackupUID:  string(b.UID),
			},
		},
		Spec: velerov1.DeleteBackupRequestSpec{BackupName: b.Name},
	}
	if err := c.Create(ctx, request); err != nil {
		return fmt.Errorf("request deletion of backup %q: %w", name, err)
	}
	o.Printf("Deletion of backup %q was requested.\n", name)
	if !o.Wait {
		return nil
	}
	return o.waitGone(ctx, c, b, request)
}

// waitGone waits until the request is processed. A successful deletion removes
// the request too, so its absence and the backup's mean success.
func (o *DeleteOptions) waitGone(ctx context.Context, c client.WithWatch, b *velerov1.Backup, request *velerov1.DeleteBackupRequest) error {
	progress := follow.NewProgress(o.Global)
	err := follow.Until(ctx, c, o.Clock, request, &velerov1.DeleteBackupRequestList{}, func() (bool, error) {
		progress.Show("Deletion "+string(phaseOr(request.Status.Phase)), 0, 0)
		return request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed, nil
	})
	progress.End()
	switch {
	case ctx.Err() != nil:
		return &global.ExitError{Code: global.CodeInterrupted, Err: fmt.Errorf(
			"no longer waiting; the deletion of backup %q goes on, `holdfast backup get %s` shows whether it is gone", b.Name, b.Name)}
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	if request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed && len(request.Status.Errors) > 0 { // else they are of an earlier try
		return fmt.Errorf("delete backup %q: %s", b.Name, strings.Join(request.Status.Errors, "; "))
	}
	now := &velerov1.Backup{}
	switch err := c.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name}, now); {
	case apierrors.IsNotFound(err), err == nil && now.UID != b.UID:
		o.Printf("Backup %q is gone.\n", b.Name)
		return nil
	case err != nil:
		return fmt.Errorf("check backup %q: %w", b.Name, err)
	default:
		return fmt.Errorf("backup %q is still there in phase %s", b.Name, shownPhase(now))
	}
}

func phaseOr(phase velerov1.DeleteBackupRequestPhase) velerov1.DeleteBackupRequestPhase {
	if phase == "" {
		return velerov1.DeleteBackupRequestPhaseNew
	}
	return phase
}
