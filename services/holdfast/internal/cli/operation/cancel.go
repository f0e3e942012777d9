package operation

import (
	"context"

	"github.com/spf13/cobra"

	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// NewCancelCommand returns `operation cancel`.
func NewCancelCommand(g *command.Global) *cobra.Command {
	o, which, all := newOptions(g), operationTarget{}, false
	cmd := &cobra.Command{
		Use:   "cancel " + ownerUse + " {ID|--all}",
		Short: "Ask operations of a backup or restore to end; they end as Failed, and the job continues",
		Args:  cobra.RangeArgs(1, 2), //nolint:mnd // a job and an operation
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := parseOwner(args[0])
			switch {
			case err != nil:
				return err
			case all == (len(args) > 1):
				return errTarget
			}
			req := &operationv1.CancelOperationRequest{Owner: &operationv1.CancelOperationRequest_Backup{Backup: who.backup}}
			if who.restore != "" {
				req.Owner = &operationv1.CancelOperationRequest_Restore{Restore: who.restore}
			}
			if all {
				req.Target = &operationv1.CancelOperationRequest_All{All: true}
			} else {
				req.Target = &operationv1.CancelOperationRequest_Operation{Operation: &operationv1.OperationName{Id: args[1], Action: which.action}}
			}
			return o.withConnection(func() error { return o.requestCancel(cmd.Context(), req) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all operations that have not ended")
	which.bindFlags(cmd.Flags())
	o.bindFlags(cmd.Flags())
	return cmd
}

// requestCancel asks. An operation that had ended is no error: nothing is left to cancel.
func (o *options) requestCancel(ctx context.Context, req *operationv1.CancelOperationRequest) error {
	if c, err := o.Connect(o.Global); err == nil {
		req.RequestedBy = job.Caller(ctx, c)
	}
	answer, err := o.api.CancelOperation(ctx, req)
	if err != nil {
		return err
	}
	for _, each := range answer.GetOperations() {
		switch e := newEntry(each); e.Phase {
		case "Completed", "Failed":
			o.Printf("Operation %q of action %s has ended: %s\n", e.ID, e.Action, e.Phase)
		default:
			o.Printf("Operation %q of action %s was asked to end.\n", e.ID, e.Action)
		}
	}
	if len(answer.GetOperations()) == 0 {
		o.Printf("No operation is left to cancel.\n")
	}
	return nil
}
