package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// getOptions are the flags of get.
type getOptions[T client.Object] struct {
	*Session
	kind     *Kind[T]
	selector string
	output   command.Output
}

// NewGetCommand returns the command that lists objects of the kind.
func (k *Kind[T]) NewGetCommand(g *command.Global) *cobra.Command {
	o := &getOptions[T]{kind: k}
	cmd := &cobra.Command{
		Use:               "get [NAME...]",
		Short:             "List " + k.kindPlural(),
		ValidArgsFunction: k.CompleteNames(g),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Session, err = Connect(g); err != nil {
				return err
			}
			return o.runGet(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "only "+k.kindPlural()+" whose labels match")
	o.output.BindObjectFlag(cmd.Flags())
	return cmd
}

func (o *getOptions[T]) runGet(ctx context.Context, names []string) error {
	list, err := o.listObjects(ctx, names)
	if err != nil {
		return err
	}
	items, err := o.listItems(list)
	switch {
	case err != nil:
		return err
	case !o.output.IsText() && len(names) == 1:
		return o.output.Print(o.Global.Out, items[0])
	case !o.output.IsText():
		return o.output.Print(o.Global.Out, list)
	case len(items) == 0:
		o.Printf("No %s in namespace %q.\n", o.kind.kindPlural(), o.Namespace)
		return nil
	}
	slices.SortFunc(items, o.kind.Compare)
	rows := command.BuildRows(items, func(obj T) []string { return o.kind.Row(obj, o.Global.Clock.Now()) })
	return o.output.PrintTable(o.Global.Out, o.kind.Columns, o.kind.WideColumns, rows)
}

// listObjects reads what was asked for.
func (o *getOptions[T]) listObjects(ctx context.Context, names []string) (client.ObjectList, error) {
	list := o.kind.NewList()
	if len(names) == 0 {
		selector, err := labels.Parse(o.selector)
		if err != nil {
			return nil, fmt.Errorf("--selector: %w", err)
		}
		if err := o.Client.List(ctx, list, client.InNamespace(o.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, fmt.Errorf("list %s: %w", o.kind.kindPlural(), err)
		}
		return list, nil
	}
	found := make([]runtime.Object, 0, len(names))
	for _, name := range names {
		obj, err := o.kind.Find(ctx, o.Session, name)
		if err != nil {
			return nil, err
		}
		found = append(found, obj)
	}
	return list, meta.SetList(list, found)
}

// listItems returns pointers to the entries of a list. The list and its entries name their kinds
// afterwards, which lists of an API server do not.
func (o *getOptions[T]) listItems(list client.ObjectList) ([]T, error) {
	list.GetObjectKind().SetGroupVersionKind(velerov1.GroupVersion.WithKind(o.kind.Name + "List"))
	var items []T
	err := meta.EachListItem(list, func(entry runtime.Object) error {
		obj, ok := entry.(T)
		if !ok {
			return fmt.Errorf("list %s: unexpected %T", o.kind.kindPlural(), entry)
		}
		obj.GetObjectKind().SetGroupVersionKind(velerov1.GroupVersion.WithKind(o.kind.Name))
		items = append(items, obj)
		return nil
	})
	return items, err
}
