package operation

import (
	"context"

	"github.com/spf13/cobra"

	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// pageSize is the largest the service gives.
const pageSize = 1000

// NewListCommand returns `operation list`.
func NewListCommand(g *command.Global) *cobra.Command {
	o := newOptions(g)
	var output command.Output
	cmd := &cobra.Command{
		Use:   "list " + ownerUse,
		Short: "List the operations of a backup or restore",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := parseOwner(args[0])
			if err != nil {
				return err
			}
			return o.withConnection(func() error { return o.listOperations(cmd.Context(), who, &output) })
		},
	}
	output.BindFlag(cmd.Flags())
	o.bindFlags(cmd.Flags())
	return cmd
}

func (o *options) listOperations(ctx context.Context, who jobOwner, output *command.Output) error {
	req := &operationv1.ListOperationsRequest{PageSize: pageSize, Owner: &operationv1.ListOperationsRequest_Backup{Backup: who.backup}}
	if who.restore != "" {
		req.Owner = &operationv1.ListOperationsRequest_Restore{Restore: who.restore}
	}
	var all []*operationv1.Operation
	for more := true; more; more = req.GetPageToken() != "" {
		page, err := o.api.ListOperations(ctx, req)
		if err != nil {
			return err
		}
		all = append(all, page.GetOperations()...)
		req.PageToken = page.GetNextPageToken()
	}
	return o.printList(newList(all), who, output)
}

func (o *options) printList(list List, who jobOwner, output *command.Output) error {
	if !output.IsText() {
		return output.Print(o.Out, list)
	}
	if len(list.Operations) == 0 {
		o.Printf("%s has no operations.\n", who)
		return nil
	}
	return output.PrintTable(o.Out, tableHeader(), nil, o.tableRows(list.Operations))
}

func (o *options) tableRows(entries []Entry) [][]string {
	return command.BuildRows(entries, func(e Entry) []string { return e.tableRow(o.Clock.Now()) })
}
