// Package search holds the commands that ask what all backups hold: `holdfast search` and `holdfast history`.
package search

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// NewSearchCommand returns `search`.
func NewSearchCommand(g *command.Global) *cobra.Command {
	o, r := newOptions(g), &manifestv1.SearchItemsRequest{}
	cmd := &cobra.Command{
		Use:   "search [PATTERN]",
		Short: "Find objects in all backups",
		Long: `Finds objects by name in all backups, and tells how many backups hold each, and
the newest of them. In the pattern "*" stands for any text, "?" for one character
and "[ab]" for one of some. An object has to pass all filters.

Of backups that Velero wrote only the names of their objects are known: labels and
annotations match none of them.`,
		Example: `  # What was ever called like this, in any namespace
  holdfast search '*invoice*'

  # Deployments with a label in last week's backups of a schedule
  holdfast search --kind deploy -l app=web --schedule nightly --since 168h`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.Name = args[0]
			}
			return o.withConnection(func() error { return o.runSearch(cmd.Context(), r) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.bindFlags(cmd)
	cmd.Flags().StringSliceVar(&r.Kinds, "kind", nil, "only objects of these kinds, named as kubectl names them: pod, deploy.apps, widgets.v1.example.com")
	cmd.Flags().StringVarP(&r.LabelSelector, "selector", "l", "", "only objects whose labels match")
	cmd.Flags().StringArrayVar(&r.Annotations, "annotation", nil, "only objects with this annotation, `KEY`; may be repeated")
	return cmd
}

func (o *options) runSearch(ctx context.Context, r *manifestv1.SearchItemsRequest) error {
	r.Namespace, r.Backups, r.PageSize = o.namespace, &o.filter, pageSize
	notice := command.NewNotice(o.Global)
	defer notice.End()
	list, rows := newList(), [][]string{}
	for more := true; more; more = r.GetPageToken() != "" {
		page, err := o.api.SearchItems(ctx, r)
		if err != nil {
			return err
		}
		for _, i := range page.GetItems() {
			newest := newBackup(i.GetNewest())
			rows = append(rows, []string{i.GetNamespace(), i.GetKind(), i.GetName(), strconv.FormatInt(i.GetBackups(), 10), newest.Name, newest.formatStart(), i.GetGroup(), i.GetOldest().GetBackup(), newest.Location})
			item := newItem(i.GetGroup(), i.GetVersion(), i.GetKind(), i.GetNamespace(), i.GetName())
			item.Found = &Found{Backups: i.GetBackups(), Oldest: newBackup(i.GetOldest()), Newest: newest}
			list.Items = append(list.Items, item)
		}
		list.addCoverage(page.GetCoverage())
		notice.Show(fmt.Sprintf("%d objects found, still searching", len(rows)))
		r.PageToken = page.GetNextPageToken()
	}
	notice.End()
	return o.printList(list, []string{"NAMESPACE", "KIND", "NAME", "BACKUPS", "NEWEST", "TIME"}, []string{"GROUP", "OLDEST", "LOCATION"}, rows, "No objects in %d backups match.\n")
}
