package job

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewCancelCommand returns the command that cancels jobs.
func (k *Kind[T]) NewCancelCommand(g *command.Global) *cobra.Command {
	wait := false
	cmd := &cobra.Command{
		Use:               "cancel NAME...",
		Short:             k.CancelShort,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: k.CompleteNames(g),
		RunE:              func(cmd *cobra.Command, args []string) error { return k.cancelAll(cmd.Context(), g, args, wait) },
	}
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, "wait until the "+k.kindPlural()+" have ended")
	return cmd
}

// cancelAll requests that each job stop; it reports all whose request failed.
func (k *Kind[T]) cancelAll(ctx context.Context, g *command.Global, names []string, wait bool) error {
	s, err := Connect(g)
	if err != nil {
		return err
	}
	by := Caller(ctx, s.Client)
	var errs []error
	for _, name := range names {
		errs = append(errs, k.cancelJob(ctx, s, name, by, wait))
	}
	return errors.Join(errs...)
}

func (k *Kind[T]) cancelJob(ctx context.Context, s *Session, name, by string, wait bool) error {
	obj, err := k.Find(ctx, s, name)
	if err != nil {
		return err
	}
	if err := AskCancel(ctx, s.Client, s.Global.Clock, obj, by, k.mayCancel); err != nil {
		return fmt.Errorf("cancel %s %q: %w", k.kindNoun(), name, err)
	}
	s.Printf("%s %q was asked to stop.\n", k.Name, name)
	if !wait {
		return nil
	}
	err = k.awaitTerminal(ctx, s, obj)
	status := k.Status(obj)
	if status.Phase == velerov1.BackupPhaseFailed && mark.IsCancelReason(status.FailureReason) {
		s.Printf("%s %q is %s.\n", k.Name, name, status.FailureReason)
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%s %q was not stopped, it had ended before: %s", k.kindNoun(), name, status.Phase)
	}
	return err
}

// mayCancel returns why a job cannot be stopped any more. A job that was cancelled before
// may be asked again.
func (k *Kind[T]) mayCancel(obj T) error {
	switch status := k.Status(obj); {
	case status.Stage == mark.StageEnded && mark.IsCancelReason(status.FailureReason):
		return nil
	case status.Stage == mark.StageEnded:
		return fmt.Errorf("it has ended: %s; nothing is left to stop", k.shownPhase(obj))
	case status.Stage == mark.StageClosing:
		return errors.New("it is about to end and cannot be stopped any more")
	}
	return nil
}

// Caller is who the API server takes the caller for; empty when it does not say.
func Caller(ctx context.Context, c client.Client) string {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return "" // the job stops all the same
	}
	return review.Status.UserInfo.Username
}

// AskCancel writes the request on a job that may still be stopped. obj holds its newest state afterwards.
func AskCancel[T client.Object](ctx context.Context, c client.Client, clk clock.PassiveClock, obj T, by string, may func(T) error) error {
	return kube.Update(ctx, c, c, obj, func(o T) error {
		if err := may(o); err != nil {
			return err
		}
		return mark.WriteCancelRequest(o, mark.CancelRequest{By: by, Time: clk.Now().UTC().Truncate(time.Second)})
	})
}
