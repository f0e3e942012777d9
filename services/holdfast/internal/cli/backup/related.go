package backup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// RelatedOptions are the flags of `backup related`.
type RelatedOptions struct {
	ContentOptions
	Request            manifestv1.ListRelatedRequest
	Children, Depended bool
	Output             command.Output
}

// RelatedItem is an object that belongs to another one, as -o prints it.
type RelatedItem struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Path      string `json:"path"`
	Relation  string `json:"relation"`
	Of        Object `json:"of"`
}

// Object names an object.
type Object struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// NewRelatedCommand returns `backup related`.
func NewRelatedCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := &RelatedOptions{ContentOptions: newContentOptions(g)}
	cmd := &cobra.Command{
		Use:   "related NAME KIND/NAME",
		Short: "List what an object in a backup owns and needs",
		Long: `Lists the objects in a backup that belong to one of them, in all namespaces, and
why: what it owns (children), what it names in its content (dependencies), and so
on from these. The nearest come first. Objects that are not in the backup are not
listed; "backup tree" marks them.`,
		Example: `  holdfast backup related nightly deploy/web -n shop
  holdfast backup related nightly cluster/prod -n fleet --dependencies=false

  # What uses a Secret
  holdfast backup related nightly secret/db -n shop --reverse`,
		Args: cobra.ExactArgs(2), //nolint:mnd // a backup and an object of it
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r := &o.Request
			r.Backup, r.Namespace, r.WithoutChildren, r.WithoutDependencies = args[0], o.Namespace, !o.Children, !o.Depended
			if r.Kind, r.Name, err = splitItemName(args[1]); err != nil {
				return err
			}
			if !o.Children && !o.Depended {
				return errors.New("--children and --dependencies are both off: nothing is left")
			}
			return o.withConnection(func() error { return o.Run(cmd.Context()) })
		},
	}
	cmd.ValidArgsFunction = o.completeItem(kind.CompleteNames(g))
	o.bindFlags(cmd)
	cmd.Flags().BoolVar(&o.Children, "children", true, "list what objects own")
	cmd.Flags().BoolVar(&o.Depended, "dependencies", true, "list what objects name")
	cmd.Flags().BoolVar(&o.Request.Reverse, "reverse", false, "list what owns and names the object instead")
	o.Output.BindFlag(cmd.Flags())
	return cmd
}

// Run lists the objects.
func (o *RelatedOptions) Run(ctx context.Context) error {
	items, err := o.readItems(ctx)
	if err = errgrpc.FromStatus(err); errors.Is(err, errgrpc.ErrNotFound) && o.Namespace == "" {
		err = o.suggestNamespace(ctx, o.Request.GetBackup(), o.Request.GetKind(), o.Request.GetName(), err)
	}
	switch {
	case err != nil:
		return err
	case !o.Output.IsText():
		return o.Output.Print(o.Out, items)
	case len(items) == 0:
		o.Printf("Nothing in backup %[3]q is related to %[1]s/%[2]s.\n", o.Request.GetKind(), o.Request.GetName(), o.Request.GetBackup())
		return nil
	}
	rows := make([][]string, len(items))
	for i, item := range items {
		of := item.Of.Kind + "/" + item.Of.Name
		if item.Of.Namespace != item.Namespace && item.Of.Namespace != "" {
			of += " in " + item.Of.Namespace
		}
		rows[i] = []string{item.Namespace, item.Kind, item.Name, item.Relation, of}
	}
	direction := "FROM"
	if o.Request.GetReverse() {
		direction = "TO"
	}
	return o.Output.PrintTable(o.Out, []string{"NAMESPACE", "KIND", "NAME", "RELATION", direction}, nil, rows)
}

func (o *RelatedOptions) readItems(ctx context.Context) ([]RelatedItem, error) {
	stream, err := o.api.ListRelated(ctx, &o.Request)
	if err != nil {
		return nil, err
	}
	items := []RelatedItem{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		if m.GetMore() {
			_, _ = fmt.Fprintln(o.ErrOut, "More objects are related; these are the nearest.")
		}
		for _, i := range m.GetItems() {
			of := i.GetOf()
			items = append(items, RelatedItem{
				Group: i.GetGroup(), Version: i.GetVersion(), Kind: i.GetKind(), Namespace: i.GetNamespace(), Name: i.GetName(), Path: i.GetPath(), Relation: of.GetRelation(),
				Of: Object{Group: of.GetGroup(), Kind: of.GetKind(), Namespace: of.GetNamespace(), Name: of.GetName()},
			})
		}
	}
}
