package search

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// NewHistoryCommand returns `history`.
func NewHistoryCommand(g *command.Global) *cobra.Command {
	o, r, changes := newOptions(g), &manifestv1.GetHistoryRequest{}, false
	cmd := &cobra.Command{
		Use:   "history KIND/NAME",
		Short: "List the backups that hold an object, and in which of them it changed",
		Long: `Lists the backups that hold an object, the newest first, and compares each with
the one below it. An object has changed if a restore would bring back something
else: its status does not count. Of backups that Velero wrote only names are
known, so that changes are not.`,
		Example: `  holdfast history deploy/web -n shop
  holdfast history clusterrole/reader --changes --since 720h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Kind, r.Name, _ = strings.Cut(args[0], "/")
			if r.GetKind() == "" || r.GetName() == "" {
				return fmt.Errorf("%q is not of the form KIND/NAME", args[0])
			}
			return o.withConnection(func() error { return o.runHistory(cmd.Context(), r, changes) })
		},
		ValidArgsFunction: o.completeObject,
	}
	o.bindFlags(cmd)
	cmd.Flags().BoolVar(&changes, "changes", false, "leave out the backups in which it did not change")
	return cmd
}

func (o *options) runHistory(ctx context.Context, r *manifestv1.GetHistoryRequest, changes bool) error {
	r.Namespace, r.Backups, r.PageSize = o.namespace, &o.filter, pageSize
	list, rows := newList(), [][]string{}
	for more := true; more; more = r.GetPageToken() != "" {
		page, err := o.api.GetHistory(ctx, r)
		if err != nil {
			return err
		}
		for _, e := range page.GetEntries() {
			if changes && e.GetChange() == manifestv1.HistoryEntry_CHANGE_UNCHANGED {
				continue
			}
			b := newBackup(e.GetBackup())
			item := newItem(velerov1.GroupVersion.Group, velerov1.GroupVersion.Version, "Backup", "", b.Name)
			item.Backup, item.Change = &b, changeNames[e.GetChange()]
			list.Items = append(list.Items, item)
			rows = append(rows, []string{b.Name, b.formatStart(), item.Change, b.Location, b.Schedule})
		}
		list.addCoverage(page.GetCoverage())
		r.PageToken = page.GetNextPageToken()
	}
	where := " in namespace " + o.namespace
	if o.namespace == "" {
		where = ", of no namespace; -n names the namespace of an object that has one"
	}
	return o.printList(list, []string{"BACKUP", "TIME", "CHANGE", "LOCATION"}, []string{"SCHEDULE"}, rows, "None of %d backups holds "+r.GetKind()+"/"+r.GetName()+where+".\n")
}

var changeNames = map[manifestv1.HistoryEntry_Change]string{
	manifestv1.HistoryEntry_CHANGE_FIRST: "First", manifestv1.HistoryEntry_CHANGE_UNCHANGED: "Unchanged",
	manifestv1.HistoryEntry_CHANGE_CHANGED: "Changed", manifestv1.HistoryEntry_CHANGE_UNKNOWN: "Unknown",
}

// completeObject offers the objects of the kind that was typed.
func (o *options) completeObject(cmd *cobra.Command, args []string, typed string) (names []string, _ cobra.ShellCompDirective) {
	kind, name, named := strings.Cut(typed, "/")
	if !named || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), job.CompleteTimeout)
	defer cancel()
	_ = o.withConnection(func() error { // a service that does not answer offers nothing
		page, err := o.api.SearchItems(ctx, &manifestv1.SearchItemsRequest{Kinds: []string{kind}, Namespace: o.namespace, Name: name + "*", PageSize: pageSize})
		for _, item := range page.GetItems() {
			names = append(names, kind+"/"+item.GetName())
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
