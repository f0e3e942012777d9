package restore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/output"
)

// GetOptions are the flags of `restore get`.
type GetOptions struct {
	*global.Global
	Names    []string
	Selector string
	Format   output.Format

	client    client.WithWatch
	namespace string
}

// NewGetCommand returns `restore get`.
func NewGetCommand(g *global.Global) *cobra.Command {
	o := &GetOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "get [NAME...]",
		Short: "List restores",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Selector, "selector", "l", "", "only restores whose labels match")
	o.Format.BindFlag(cmd.Flags())
	return cmd
}

// Complete connects.
func (o *GetOptions) Complete(args []string) error {
	o.Names = args
	var err error
	o.client, o.namespace, err = o.Client()
	return err
}

// Run prints the restores.
func (o *GetOptions) Run(ctx context.Context) error {
	list, err := o.list(ctx)
	if err != nil {
		return err
	}
	if o.Format != output.Text {
		if len(o.Names) == 1 {
			return o.Format.Print(o.Out, &list.Items[0])
		}
		return o.Format.Print(o.Out, list)
	}
	if len(list.Items) == 0 {
		o.Printf("No restores in namespace %q.\n", o.namespace)
		return nil
	}
	slices.SortFunc(list.Items, func(a, b velerov1.Restore) int { return cmp.Compare(a.Name, b.Name) })
	rows := make([][]string, 0, len(list.Items))
	for i := range list.Items {
		rows = append(rows, row(&list.Items[i]))
	}
	header := []string{"NAME", "BACKUP", "STATUS", "STARTED", "COMPLETED", "ERRORS", "WARNINGS", "CREATED", "SELECTOR"}
	return output.Table(o.Out, header, rows)
}

func (o *GetOptions) list(ctx context.Context) (*velerov1.RestoreList, error) {
	list := &velerov1.RestoreList{}
	if len(o.Names) == 0 {
		selector, err := labels.Parse(o.Selector)
		if err != nil {
			return nil, fmt.Errorf("--selector: %w", err)
		}
		if err := o.client.List(ctx, list, client.InNamespace(o.namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, fmt.Errorf("list restores: %w", err)
		}
	}
	for _, name := range o.Names {
		r, err := find(ctx, o.client, o.namespace, name)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *r)
	}
	list.SetGroupVersionKind(velerov1.GroupVersion.WithKind("RestoreList"))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(velerov1.GroupVersion.WithKind("Restore"))
	}
	return list, nil
}

func row(r *velerov1.Restore) []string {
	return []string{
		r.Name, r.Spec.BackupName, string(shownPhase(r)), output.Time(r.Status.StartTimestamp), output.Time(r.Status.CompletionTimestamp),
		strconv.Itoa(r.Status.Errors), strconv.Itoa(r.Status.Warnings), output.Time(&r.CreationTimestamp),
		output.Selector(r.Spec.LabelSelector, r.Spec.OrLabelSelectors),
	}
}
