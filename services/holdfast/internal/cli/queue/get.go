package queue

import (
	"context"

	"github.com/spf13/cobra"

	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// pageSize is the largest the service gives.
const pageSize = 1000

// List is a queue, as -o prints it: what runs first, then what waits in order.
type List struct {
	Entries []Entry `json:"entries"`
}

// NewGetCommand returns `queue get`.
func NewGetCommand(g *command.Global) *cobra.Command {
	o := newOptions(g)
	cmd := &cobra.Command{
		Use:   "get",
		Short: "List the backups and restores that run or wait",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withConnection(func() error { return o.getQueue(cmd.Context()) })
		},
	}
	o.BindFlags(cmd.Flags())
	return cmd
}

func (o *Options) getQueue(ctx context.Context) error {
	list := List{Entries: []Entry{}}
	known := map[string]bool{}
	for token, more := "", true; more; more = token != "" {
		page, err := o.api.ListQueue(ctx, &queuev1.ListQueueRequest{PageSize: pageSize, PageToken: token})
		if err != nil {
			return o.Remote.Explain(err)
		}
		for _, e := range page.GetEntries() {
			if err := o.checkNamespace(e); err != nil {
				return err
			}
			if !known[e.GetUid()] { // one that moved behind the page before
				known[e.GetUid()] = true
				list.Entries = append(list.Entries, newEntry(e))
			}
		}
		token = page.GetNextPageToken()
	}
	return o.printList(list)
}

func (o *Options) printList(list List) error {
	if !o.Output.IsText() {
		return o.Output.Print(o.Out, list)
	}
	if len(list.Entries) == 0 {
		o.Printf("Nothing runs and nothing waits in namespace %s.\n", o.namespace)
		return nil
	}
	return o.Output.PrintTable(o.Out, tableHeader(), nil, command.BuildRows(list.Entries, func(e Entry) []string { return e.tableRow(o.Clock.Now()) }))
}
