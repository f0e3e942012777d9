package backup

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
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/queue"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/remote"
)

// describeTimeout is how long a description waits for each of its files.
const describeTimeout = 30 * time.Second

// askTimeout is how long a description waits for what the queue says: a place in
// the queue is in the backup too, only older.
const askTimeout = 2 * time.Second

// DescribeOptions are the flags of `backup describe`.
type DescribeOptions struct {
	*global.Global
	Names    []string
	Details  bool
	Format   output.Format
	Download download.Options
	Remote   remote.Options

	client    client.WithWatch
	namespace string
	fetcher   *download.Fetcher
}

// Description is everything known about one backup, as -o prints it.
type Description struct {
	Backup *velerov1.Backup `json:"backup"`
	// Queue is where a backup that waits stands; absent when nobody can be asked.
	Queue     *queue.Explanation             `json:"queue,omitempty"`
	Deletions []velerov1.DeleteBackupRequest `json:"deletionRequests,omitempty"`
	Results   *describe.Results              `json:"results,omitempty"`
	Volumes   []describe.Volume              `json:"volumes"`
	Resources map[string][]string            `json:"resources,omitempty"`
	// Problems are the files that exist and could not be read.
	Problems []string `json:"problems,omitempty"`
}

// NewDescribeCommand returns `backup describe`.
func NewDescribeCommand(g *global.Global) *cobra.Command {
	o := &DescribeOptions{Global: g, Download: download.Options{Timeout: describeTimeout}, Remote: remote.Queue()}
	cmd := &cobra.Command{
		Use:   "describe NAME...",
		Short: "Show everything about backups",
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
	o.Remote.BindFlags(cmd.Flags())
	return cmd
}

// Complete connects.
func (o *DescribeOptions) Complete(args []string) error {
	o.Names = args
	var err error
	if o.client, o.namespace, err = o.Client(); err != nil {
		return err
	}
	conn, err := o.Remote.Connect(o.Global)
	if err != nil { // a wrong flag; that nobody answers is no reason to show nothing
		return err
	}
	_ = conn.Close() // it was never dialled
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

// gather reads the backup and, once its run is over, its files. A file that
// cannot be read is a problem to show, not a reason to show nothing.
func (o *DescribeOptions) gather(ctx context.Context, name string) (*Description, error) {
	b, err := find(ctx, o.client, o.namespace, name)
	if err != nil {
		return nil, err
	}
	d := &Description{Backup: b}
	requests := &velerov1.DeleteBackupRequestList{}
	labels := client.MatchingLabels{velerov1.LabelBackupName: velerov1.LabelValue(b.Name), velerov1.LabelBackupUID: string(b.UID)}
	if err := o.client.List(ctx, requests, client.InNamespace(o.namespace), labels); err != nil {
		return nil, fmt.Errorf("list deletion requests of backup %q: %w", name, err)
	}
	d.Deletions = requests.Items
	if b.Status.Phase.IsNew() || b.Status.Phase == velerov1.BackupPhaseQueued {
		d.Queue = o.place(ctx, b)
	}
	if !hasLog(b.Status.Phase) {
		return d, nil
	}
	if b.Status.Warnings > 0 || b.Status.Errors > 0 {
		d.Results = &describe.Results{}
		o.file(ctx, d, velerov1.DownloadTargetKindBackupResults, d.Results)
	}
	o.file(ctx, d, velerov1.DownloadTargetKindBackupVolumeInfos, &d.Volumes)
	if o.Details {
		o.file(ctx, d, velerov1.DownloadTargetKindBackupResourceList, &d.Resources)
	}
	return d, nil
}

// place is where the backup stands in the queue; nil when the service that knows
// is not there, or serves others.
func (o *DescribeOptions) place(ctx context.Context, b *velerov1.Backup) *queue.Explanation {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	x, err := queue.Ask(ctx, o.Global, o.Remote, b.Name)
	if err != nil || x.UID != string(b.UID) {
		return nil
	}
	return x
}

func (o *DescribeOptions) file(ctx context.Context, d *Description, kind velerov1.DownloadTargetKind, into any) {
	body, err := o.fetcher.Open(ctx, kind, d.Backup.Name, d.Backup.Spec.StorageLocation)
	if err == nil {
		err = describe.Decode(body, into)
	}
	// A failed backup may have ended before it wrote this file.
	if err != nil && !errors.Is(err, download.ErrNotFound) {
		d.Problems = append(d.Problems, err.Error())
	}
}
