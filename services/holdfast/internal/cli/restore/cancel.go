package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/cancel"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/askcancel"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
)

// CancelOptions are the flags of `restore cancel`.
type CancelOptions struct {
	*global.Global
	Wait bool
}

// NewCancelCommand returns `restore cancel`.
func NewCancelCommand(g *global.Global) *cobra.Command {
	o := &CancelOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "cancel NAME...",
		Short: "Stop restores that wait or run; they end as Failed, and what they restored stays",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return o.Run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVarP(&o.Wait, "wait", "w", false, "wait until the restores have ended")
	return cmd
}

// Run asks each restore to stop; it reports all that could not be asked.
func (o *CancelOptions) Run(ctx context.Context, names []string) error {
	c, namespace, err := o.Client()
	if err != nil {
		return err
	}
	by := askcancel.Caller(ctx, c)
	var errs []error
	for _, name := range names {
		errs = append(errs, o.cancel(ctx, c, namespace, name, by))
	}
	return errors.Join(errs...)
}

func (o *CancelOptions) cancel(ctx context.Context, c client.WithWatch, namespace, name, by string) error {
	r, err := find(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	err = askcancel.Ask(ctx, c, o.Clock, r, by, func(r *velerov1.Restore) error {
		switch stage := cancel.RestoreStage(r); {
		case stage == cancel.Ended && cancel.IsReason(r.Status.FailureReason):
			return nil
		case stage == cancel.Ended:
			return fmt.Errorf("it has ended: %s", shownPhase(r))
		case stage == cancel.Closing:
			return errors.New("it is about to end")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cancel restore %q: %w", name, err)
	}
	o.Printf("Restore %q was asked to stop.\n", name)
	if !o.Wait {
		return nil
	}
	err = wait(ctx, o.Global, c, r)
	if r.Status.Phase == velerov1.RestorePhaseFailed && cancel.IsReason(r.Status.FailureReason) {
		o.Printf("Restore %q is %s.\n", name, r.Status.FailureReason)
		return nil
	}
	if err == nil {
		err = fmt.Errorf("restore %q was not stopped, it had ended before: %s", name, r.Status.Phase)
	}
	return err
}
