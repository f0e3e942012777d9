package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/describe"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/download"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/output"
)

// describeTimeout is how long a description waits for each of its files.
const describeTimeout = 30 * time.Second

// DescribeOptions are the flags of `restore describe`.
type DescribeOptions struct {
	*global.Global
	Names    []string
	Details  bool
	Format   output.Format
	Download download.Options

	client    client.WithWatch
	namespace string
	fetcher   *download.Fetcher
}

// Description is everything known about one restore, as -o prints it.
type Description struct {
	Restore   *velerov1.Restore   `json:"restore"`
	Results   *describe.Results   `json:"results,omitempty"`
	Volumes   []describe.Volume   `json:"volumes"`
	Resources map[string][]string `json:"resources,omitempty"`
	// Problems are the files that exist and could not be read.
	Problems []string `json:"problems,omitempty"`
}

// NewDescribeCommand returns `restore describe`.
func NewDescribeCommand(g *global.Global) *cobra.Command {
	o := &DescribeOptions{Global: g, Download: download.Options{Timeout: describeTimeout}}
	cmd := &cobra.Command{
		Use:   "describe NAME...",
		Short: "Show everything about restores",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.Details, "details", false, "list every object too")
	o.Format.BindFlag(cmd.Flags())
	o.Download.BindFlags(cmd.Flags())
	return cmd
}

// Complete connects.
func (o *DescribeOptions) Complete(args []string) error {
	o.Names = args
	var err error
	if o.client, o.namespace, err = o.Client(); err != nil {
		return err
	}
	o.fetcher = &download.Fetcher{Client: o.client, Clock: o.Clock, Namespace: o.namespace, Options: o.Download}
	return nil
}

// Run prints the descriptions.
func (o *DescribeOptions) Run(ctx context.Context) error {
	var all []*Description
	for _, name := range o.Names {
		d, err := o.gather(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	switch {
	case o.Format == output.Text:
		return o.text(all)
	case len(all) == 1:
		return o.Format.Print(o.Out, all[0])
	default:
		return o.Format.Print(o.Out, all)
	}
}

func (o *DescribeOptions) text(all []*Description) error {
	for i, d := range all {
		page := &describe.Page{}
		if i > 0 {
			page.Gap()
		}
		d.write(page)
		if _, err := page.WriteTo(o.Out); err != nil {
			return err
		}
	}
	return nil
}

// gather reads the restore and, once its run is over, its files.
func (o *DescribeOptions) gather(ctx context.Context, name string) (*Description, error) {
	r, err := find(ctx, o.client, o.namespace, name)
	if err != nil {
		return nil, err
	}
	d := &Description{Restore: r}
	if !hasLog(r.Status.Phase) {
		return d, nil
	}
	where, err := location(ctx, o.client, r)
	if err != nil {
		return nil, err
	}
	if r.Status.Warnings > 0 || r.Status.Errors > 0 {
		d.Results = &describe.Results{}
		o.file(ctx, d, where, velerov1.DownloadTargetKindRestoreResults, d.Results)
	}
	o.file(ctx, d, where, velerov1.DownloadTargetKindRestoreVolumeInfo, &d.Volumes)
	if o.Details {
		o.file(ctx, d, where, velerov1.DownloadTargetKindRestoreResourceList, &d.Resources)
	}
	return d, nil
}

func (o *DescribeOptions) file(ctx context.Context, d *Description, where string, kind velerov1.DownloadTargetKind, into any) {
	body, err := o.fetcher.Open(ctx, kind, d.Restore.Name, where)
	if err == nil {
		err = describe.Decode(body, into)
	}
	// A failed restore may have ended before it wrote this file.
	if err != nil && !errors.Is(err, download.ErrNotFound) {
		d.Problems = append(d.Problems, err.Error())
	}
}

// write renders a description for people.
func (d *Description) write(p *describe.Page) {
	r := d.Restore
	p.Field(0, "Name", r.Name)
	p.Field(0, "Namespace", r.Namespace)
	p.Map("Labels", r.Labels)
	p.Map("Annotations", r.Annotations)
	p.Gap()
	p.Field(0, "Phase", shownPhase(r))
	if r.Status.FailureReason != "" {
		p.Field(0, "Failure reason", r.Status.FailureReason)
	}
	if len(r.Status.ValidationErrors) > 0 {
		p.Heading("Validation errors")
		p.List(1, r.Status.ValidationErrors)
	}
	if d.Results != nil {
		p.Messages("Errors", d.Results.Errors)
		p.Messages("Warnings", d.Results.Warnings)
	}
	d.writeSpec(p)
	p.Gap()
	p.Field(0, "Started", output.Time(r.Status.StartTimestamp))
	p.Field(0, "Completed", output.Time(r.Status.CompletionTimestamp))
	if r.Status.Progress != nil {
		p.Field(0, "Items", fmt.Sprintf("%d of %d", r.Status.Progress.ItemsRestored, r.Status.Progress.TotalItems))
	}
	p.Field(0, "Errors", r.Status.Errors)
	p.Field(0, "Warnings", r.Status.Warnings)
	p.Volumes(d.Volumes)
	if d.Resources != nil {
		p.Resources(d.Resources)
	}
	if len(d.Problems) > 0 {
		p.Heading("Files that could not be read")
		p.List(1, d.Problems)
	}
}

func (d *Description) writeSpec(p *describe.Page) {
	s := &d.Restore.Spec
	p.Gap()
	p.Field(0, "Backup", s.BackupName)
	if s.ScheduleName != "" {
		p.Field(0, "Schedule", s.ScheduleName)
	}
	p.Heading("Namespaces")
	p.Field(1, "Included", describe.Names(s.IncludedNamespaces, "*"))
	p.Field(1, "Excluded", describe.Names(s.ExcludedNamespaces, ""))
	p.Heading("Resources")
	p.Field(1, "Included", describe.Names(s.IncludedResources, "*"))
	p.Field(1, "Excluded", describe.Names(s.ExcludedResources, ""))
	p.Field(1, "Cluster-scoped", describe.OptionalBool(s.IncludeClusterResources, "auto"))
	p.Gap()
	p.Map("Namespace mappings", s.NamespaceMapping)
	p.Field(0, "Label selector", output.Selector(s.LabelSelector, s.OrLabelSelectors))
	p.Field(0, "Existing resources", string(s.ExistingResourcePolicy))
	p.Field(0, "Restore volumes", describe.OptionalBool(s.RestorePVs, "auto"))
	p.Field(0, "Preserve node ports", describe.OptionalBool(s.PreserveNodePorts, "auto"))
}
