package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/follow"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/pick"
)

// DeleteOptions are the flags of `restore delete`.
type DeleteOptions struct {
	*global.Global
	Pick pick.Options
	Wait bool
}

// NewDeleteCommand returns `restore delete`.
func NewDeleteCommand(g *global.Global) *cobra.Command {
	o := &DeleteOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "delete [NAME...]",
		Short: "Delete the records of restores; what they restored stays",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Pick.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	o.Pick.BindFlags(cmd.Flags(), "restores")
	cmd.Flags().BoolVarP(&o.Wait, "wait", "w", false, "wait until the files of the restores are gone too")
	return cmd
}

// Run deletes each restore; it reports all that could not be deleted.
func (o *DeleteOptions) Run(ctx context.Context) error {
	c, namespace, err := o.Client()
	if err != nil {
		return err
	}
	names, err := o.Pick.Names(ctx, c, namespace, &velerov1.RestoreList{})
	if err != nil {
		return err
	}
	if len(names) == 0 {
		o.Printf("No restores in namespace %q match.\n", namespace)
		return nil
	}
	if !o.Pick.Confirmed(o.Global, "restores", names) {
		o.Printf("Nothing was deleted.\n")
		return nil
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, o.delete(ctx, c, namespace, name))
	}
	return errors.Join(errs...)
}

// delete removes the object; the server's finalizer removes its files first.
func (o *DeleteOptions) delete(ctx context.Context, c client.WithWatch, namespace, name string) error {
	r, err := find(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	if err := c.Delete(ctx, r, client.Preconditions{UID: &r.UID}); err != nil {
		return fmt.Errorf("delete restore %q: %w", name, err)
	}
	o.Printf("Restore %q was deleted.\n", name)
	if !o.Wait {
		return nil
	}
	uid := r.UID
	err = follow.Until(ctx, c, o.Clock, r, &velerov1.RestoreList{}, func() (bool, error) { return r.UID != uid, nil })
	switch {
	case ctx.Err() != nil:
		return &global.ExitError{Code: global.CodeInterrupted, Err: fmt.Errorf("no longer waiting; the deletion of restore %q goes on", name)}
	case apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}
