package backup

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/output"
)

// GetOptions are the flags of `backup get`.
type GetOptions struct {
	*global.Global
	Names    []string
	Selector string
	Format   output.Format

	client    client.WithWatch
	namespace string
}

// NewGetCommand returns `backup get`.
func NewGetCommand(g *global.Global) *cobra.Command {
	o := &GetOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "get [NAME...]",
		Short: "List backups",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Selector, "selector", "l", "", "only backups whose labels match")
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

// Run prints the backups.
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
		o.Printf("No backups in namespace %q.\n", o.namespace)
		return nil
	}
	sortBackups(list.Items)
	rows := make([][]string, 0, len(list.Items))
	for i := range list.Items {
		rows = append(rows, row(&list.Items[i], o.Clock.Now()))
	}
	header := []string{"NAME", "STATUS", "ERRORS", "WARNINGS", "CREATED", "EXPIRES", "STORAGE LOCATION", "QUEUE POSITION", "SELECTOR"}
	return output.Table(o.Out, header, rows)
}

func (o *GetOptions) list(ctx context.Context) (*velerov1.BackupList, error) {
	list := &velerov1.BackupList{}
	if len(o.Names) == 0 {
		selector, err := labels.Parse(o.Selector)
		if err != nil {
			return nil, fmt.Errorf("--selector: %w", err)
		}
		if err := o.client.List(ctx, list, client.InNamespace(o.namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, fmt.Errorf("list backups: %w", err)
		}
	}
	for _, name := range o.Names {
		b, err := find(ctx, o.client, o.namespace, name)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *b)
	}
	list.SetGroupVersionKind(velerov1.GroupVersion.WithKind("BackupList"))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(velerov1.GroupVersion.WithKind("Backup"))
	}
	return list, nil
}

// bySchedule matches the names of backups made by a schedule.
var bySchedule = regexp.MustCompile(`^(.*)-\d{14}$`)

// sortBackups orders by name; backups of one schedule come newest first.
func sortBackups(items []velerov1.Backup) {
	slices.SortFunc(items, func(a, b velerov1.Backup) int {
		nameA, nameB := bySchedule.FindStringSubmatch(a.Name), bySchedule.FindStringSubmatch(b.Name)
		if nameA != nil && nameB != nil && nameA[1] == nameB[1] {
			return cmp.Compare(b.Name, a.Name)
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

func row(b *velerov1.Backup, now time.Time) []string {
	position := ""
	if b.Status.QueuePosition > 0 {
		position = strconv.Itoa(b.Status.QueuePosition)
	}
	return []string{
		b.Name, string(shownPhase(b)), strconv.Itoa(b.Status.Errors), strconv.Itoa(b.Status.Warnings),
		output.Time(b.Status.StartTimestamp), output.Until(expiration(b), now), b.Spec.StorageLocation, position,
		output.Selector(b.Spec.LabelSelector, b.Spec.OrLabelSelectors),
	}
}

// expiration is the one in the status or, before there is one, what the TTL says.
func expiration(b *velerov1.Backup) time.Time {
	switch {
	case b.Status.Expiration != nil:
		return b.Status.Expiration.Time
	case b.Spec.TTL.Duration > 0:
		return b.CreationTimestamp.Add(b.Spec.TTL.Duration)
	default:
		return time.Time{}
	}
}
