package backup

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// ItemsOptions are the flags of `backup items`.
type ItemsOptions struct {
	ContentOptions
	Request manifestv1.ListItemsRequest
	Output  command.Output
}

// NewItemsCommand returns `backup items`.
func NewItemsCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := &ItemsOptions{ContentOptions: newContentOptions(g)}
	cmd := &cobra.Command{
		Use:   "items NAME",
		Short: "List the objects in a backup",
		Long: `Lists the objects in a backup, without their content, in the order of kinds,
namespaces and names. Filters are combined: an object has to pass all of them.`,
		Example: `  # Everything in namespace shop
  holdfast backup items nightly -n shop

  # Deployments and StatefulSets whose name begins with web, as kubectl names them
  holdfast backup items nightly --kind deploy,sts --name 'web*'

  # What a Deployment owns, and what has a label
  holdfast backup items nightly --owner deploy/web
  holdfast backup items nightly -l app=web -o name`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Request.Backup = args[0]
			return o.withConnection(func() error { return o.Run(cmd.Context()) })
		},
	}
	cmd.ValidArgsFunction = job.OneArg(kind.CompleteNames(g))
	o.bindFlags(cmd)
	o.bindFilters(cmd.Flags())
	o.completeKinds(cmd)
	o.Output.BindObjectFlag(cmd.Flags())
	return cmd
}

func (o *ItemsOptions) bindFilters(fs *pflag.FlagSet) {
	r := &o.Request
	fs.StringSliceVar(&r.Kinds, "kind", nil, "only objects of these kinds, named as kubectl names them: pod, deploy.apps, widgets.v1.example.com")
	fs.StringVar(&r.Name, "name", "", "only objects whose name matches this pattern, such as 'web-*'")
	fs.StringVarP(&r.LabelSelector, "selector", "l", "", "only objects whose labels match")
	fs.StringArrayVar(&r.Annotations, "annotation", nil, "only objects with this annotation, `KEY or KEY=VALUE`; may be repeated")
	fs.StringVar(&r.Owner, "owner", "", "only objects that this one owns, `KIND/NAME or UID`")
	fs.StringVar(&r.Uid, "uid", "", "only the object with this UID")
	fs.StringVar(&r.Hash, "hash", "", "only objects whose SHA-256 or content hash begins with these digits")
}

// Run lists the items.
func (o *ItemsOptions) Run(ctx context.Context) error {
	o.Request.Namespace = o.Namespace
	o.Request.Hash = strings.ToLower(o.Request.Hash)
	list, rows := newItemList(), [][]string{}
	err := o.eachItem(ctx, &o.Request, func(item *manifestv1.Item) error {
		if o.Output.IsText() {
			rows = append(rows, itemRow(item))
		} else {
			list.Items = append(list.Items, newItem(item))
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !o.Output.IsText():
		return o.Output.Print(o.Out, list)
	case len(rows) == 0:
		o.Printf("No objects in backup %q match.\n", o.Request.GetBackup())
		return nil
	}
	return o.Output.PrintTable(o.Out, []string{"NAMESPACE", "KIND", "NAME", "SIZE", "OWNER"}, []string{"API VERSION", "UID", "CONTENT HASH"}, rows)
}

func itemRow(i *manifestv1.Item) []string {
	owners := make([]string, len(i.GetOwners()))
	for at, o := range i.GetOwners() {
		owners[at] = o.GetKind() + "/" + o.GetName()
	}
	return []string{
		i.GetNamespace(), i.GetKind(), i.GetName(), strconv.FormatInt(i.GetSize(), 10), strings.Join(owners, ","),
		apiVersionOf(i), i.GetUid(), hex.EncodeToString(i.GetContentHash()),
	}
}

// apiVersionOf is "v1" or "apps/v1".
func apiVersionOf(i *manifestv1.Item) string {
	if i.GetGroup() == "" {
		return i.GetVersion()
	}
	return i.GetGroup() + "/" + i.GetVersion()
}
