package job

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewDeleteCommand returns the command that deletes objects of the kind.
func (k *Kind[T]) NewDeleteCommand(g *command.Global) *cobra.Command {
	chosen, wait := PickOptions{}, false
	cmd := &cobra.Command{
		Use:               "delete [NAME...]",
		Short:             k.DeleteShort,
		ValidArgsFunction: k.CompleteNames(g),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := chosen.Complete(args); err != nil {
				return err
			}
			return k.deleteAll(cmd.Context(), g, &chosen, wait)
		},
	}
	chosen.BindFlags(cmd.Flags(), k.kindPlural())
	cmd.Flags().BoolVarP(&wait, "wait", "w", false, k.DeleteWait)
	return cmd
}

// deleteAll deletes what was chosen; it reports all that could not be deleted.
func (k *Kind[T]) deleteAll(ctx context.Context, g *command.Global, chosen *PickOptions, wait bool) error {
	s, err := Connect(g)
	if err != nil {
		return err
	}
	names, err := chosen.Names(ctx, s.Client, s.Namespace, k.NewList())
	if err != nil {
		return err
	}
	if len(names) == 0 {
		s.Printf("No %s in namespace %q match.\n", k.kindPlural(), s.Namespace)
		return nil
	}
	if !chosen.Confirmed(g, k.kindPlural(), names) {
		s.Printf("Nothing was deleted.\n")
		return nil
	}
	var errs []error
	for _, name := range names {
		obj, err := k.Find(ctx, s, name)
		if err == nil {
			err = k.Delete(ctx, s, obj, wait)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
