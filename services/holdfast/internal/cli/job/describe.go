package job

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// describeTimeout is how long a description waits for each of its files.
const describeTimeout = 30 * time.Second

// Description is everything known about one job besides its files.
type Description struct {
	// Value is what -o prints; it holds the files too.
	Value any
	// Queue, Spec, Status and End write the sections that only the kind has; nil writes nothing.
	Queue, Spec, Status, End func(*Page)
}

// describeOptions are the flags of describe.
type describeOptions[T client.Object] struct {
	*Session
	kind     *Kind[T]
	details  bool
	output   command.Output
	download DownloadOptions
}

// NewDescribeCommand returns the command that shows everything about jobs.
func (k *Kind[T]) NewDescribeCommand(g *command.Global) *cobra.Command {
	o := &describeOptions[T]{kind: k, download: DownloadOptions{Timeout: describeTimeout}}
	cmd := &cobra.Command{
		Use:               "describe NAME...",
		Short:             "Show everything about " + k.kindPlural(),
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: k.CompleteNames(g),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Session, err = Connect(g); err != nil {
				return err
			}
			if k.CheckDescribe != nil {
				if err := k.CheckDescribe(g); err != nil {
					return err
				}
			}
			return o.runDescribe(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&o.details, "details", false, "list every object too")
	o.output.BindFlag(cmd.Flags())
	o.download.BindFlags(cmd.Flags())
	if k.DescribeFlags != nil {
		k.DescribeFlags(cmd.Flags())
	}
	return cmd
}

// runDescribe prints the descriptions once all are known.
func (o *describeOptions[T]) runDescribe(ctx context.Context, names []string) error {
	var values []any
	page := &Page{}
	for i, name := range names {
		obj, err := o.kind.Find(ctx, o.Session, name)
		if err != nil {
			return err
		}
		files := &Files{}
		d, err := o.gatherDescription(ctx, obj, files)
		if err != nil {
			return err
		}
		values = append(values, d.Value)
		if i > 0 {
			page.Gap()
		}
		o.writeDescription(page, obj, d, files)
	}
	switch {
	case o.output.IsText():
		_, err := page.WriteTo(o.Global.Out)
		return err
	case len(values) == 1:
		return o.output.Print(o.Global.Out, values[0])
	default:
		return o.output.Print(o.Global.Out, values)
	}
}

// gatherDescription reads what describes a job and, once its run is over, its files.
func (o *describeOptions[T]) gatherDescription(ctx context.Context, obj T, files *Files) (Description, error) {
	d, err := o.kind.Describe(ctx, o.Session, obj, files)
	status := o.kind.Status(obj)
	if err != nil || !hasLog(status.Phase) {
		return d, err
	}
	location, err := o.kind.Location(ctx, o.Client, obj)
	if err != nil {
		return d, err
	}
	read := func(kind velerov1.DownloadTargetKind, into any) {
		if err := o.readFile(ctx, kind, obj.GetName(), location, into); err != nil {
			files.Problems = append(files.Problems, err.Error())
		}
	}
	if status.Warnings > 0 || status.Errors > 0 {
		files.Results = &Results{}
		read(o.kind.Files.Results, files.Results)
	}
	read(o.kind.Files.Volumes, &files.Volumes)
	if o.details {
		read(o.kind.Files.Resources, &files.Resources)
	}
	return d, nil
}

// readFile reads one file of a job. One that does not exist is no error: a failed job may have ended
// before it wrote it.
func (o *describeOptions[T]) readFile(ctx context.Context, kind velerov1.DownloadTargetKind, name, location string, into any) error {
	body, err := o.Fetcher(o.download).Open(ctx, kind, name, location)
	if err == nil {
		err = decodeFile(body, into)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// writeDescription renders a description for people.
func (o *describeOptions[T]) writeDescription(p *Page, obj T, d Description, files *Files) {
	status := o.kind.Status(obj)
	p.Field(0, "Name", obj.GetName())
	p.Field(0, "Namespace", obj.GetNamespace())
	p.Map("Labels", obj.GetLabels())
	p.Map("Annotations", obj.GetAnnotations())
	p.Gap()
	p.Field(0, "Phase", o.kind.shownPhase(obj))
	writeSection(p, d.Queue)
	if waits := o.kind.waitTexts(obj); len(waits) > 0 {
		p.Heading("Waits for")
		p.List(1, waits)
	}
	if status.FailureReason != "" {
		p.Field(0, "Failure reason", status.FailureReason)
	}
	if len(status.ValidationErrors) > 0 {
		p.Heading("Validation errors")
		p.List(1, status.ValidationErrors)
	}
	p.Results(files.Results)
	writeSection(p, d.Spec)
	writeSection(p, d.Status)
	if status.Stage != mark.StageEnded {
		p.Operations(obj, o.Global.Clock.Now())
	}
	p.Volumes(files.Volumes)
	if files.Resources != nil {
		p.Resources(files.Resources)
	}
	writeSection(p, d.End)
	if len(files.Problems) > 0 {
		p.Heading("Files that could not be read")
		p.List(1, files.Problems)
	}
}

func writeSection(p *Page, write func(*Page)) {
	if write != nil {
		write(p)
	}
}
