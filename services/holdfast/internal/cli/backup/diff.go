package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// Exit codes of `backup diff`, as diff has them.
const (
	codeDifferent = 1
	codeTrouble   = 2
)

// DiffOptions are the flags of `backup diff`.
type DiffOptions struct {
	ContentOptions
	Request  manifestv1.DiffManifestsRequest
	NameOnly bool
	Output   command.Output
	// Cluster compares with the cluster instead of another backup.
	Cluster bool
	// Runner is the address of backup-runner, which lists the cluster.
	Runner string
}

// NewDiffCommand returns `backup diff`.
func NewDiffCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := &DiffOptions{ContentOptions: newContentOptions(g)}
	cmd := &cobra.Command{
		Use:   "diff FROM {TO | --cluster}",
		Short: "Show what changed between two backups, or since a backup",
		Long: `Shows which objects were added (+), removed (-) and changed (~) between two backups,
and which of their fields differ. What a restore does not bring back is left out:
status, and what the API server writes. The values of Secrets are not shown.

With --cluster the backup is compared with the cluster as it is: with what the same
backup would hold now. Nothing is written to cluster or bucket.

The exit code is 0 where nothing differs, 1 where something does, and 2 after an error,
or where nothing differs in what could be read of the cluster.`,
		Example: `  holdfast backup diff nightly-1 nightly-2
  holdfast backup diff nightly-1 nightly-2 -n shop --kind deploy,cm
  holdfast backup diff nightly-1 nightly-2 --name-only
  holdfast backup diff nightly-2 --cluster -n shop`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !o.Cluster {
				return troubleError(errors.New("name a second backup, or give --cluster"))
			}
			return troubleError(cobra.ExactArgs(o.countNames())(cmd, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Request.From, o.Request.To = args[0], append(args, "")[1]
			code := 0
			err := o.withService(func() (err error) {
				code, err = o.Run(cmd.Context())
				return err
			})
			if err == nil && code != 0 {
				return &command.ExitError{Code: code}
			}
			return troubleError(err)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return troubleError(err) })
	complete := kind.CompleteNames(g)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= o.countNames() {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
	o.bindFlags(cmd)
	cmd.Flags().StringSliceVar(&o.Request.Kinds, "kind", nil, "only objects of these kinds, named as kubectl names them: pod, deploy.apps, widgets.v1.example.com")
	cmd.Flags().BoolVar(&o.Cluster, "cluster", false, "compare with the cluster as it is")
	cmd.Flags().StringVar(&o.Runner, runnerFlag, command.BackupsAddress, "host:port of the service that lists the cluster; in a cluster, forward the port first")
	cmd.Flags().BoolVar(&o.NameOnly, "name-only", false, "name the objects only, without their fields")
	o.completeKinds(cmd)
	o.Output.BindFlag(cmd.Flags())
	return cmd
}

func troubleError(err error) error {
	if err == nil {
		return nil
	}
	return &command.ExitError{Code: codeTrouble, Err: err}
}

func (o *DiffOptions) countNames() int {
	if o.Cluster {
		return 1
	}
	return 2
}

// withService is withConnection to the service that compares.
func (o *DiffOptions) withService(run func() error) error {
	if o.Cluster {
		o.Remote = *o.Remote.Beside(runnerFlag, "backup-runner", o.Runner)
	}
	return o.withConnection(run)
}

// diffMessage is a message of either service.
type diffMessage interface {
	GetDifferences() []*manifestv1.ItemDifference
	GetCounts() *manifestv1.DiffCounts
}

// openStream returns what receives the messages.
func (o *DiffOptions) openStream(ctx context.Context) (func() (diffMessage, error), error) {
	r := &o.Request
	r.Namespace, r.WithFields = o.Namespace, !o.NameOnly
	if !o.Cluster {
		stream, err := o.api.DiffManifests(ctx, r)
		return func() (diffMessage, error) { return stream.Recv() }, err
	}
	stream, err := backupv1.NewBackupServiceClient(o.conn).DiffCluster(ctx, &backupv1.DiffClusterRequest{
		Backup: r.GetFrom(), Kinds: r.GetKinds(), Namespace: r.GetNamespace(), WithFields: r.GetWithFields(),
	})
	return func() (diffMessage, error) { return stream.Recv() }, err
}

// Run prints the differences, and returns the exit code.
func (o *DiffOptions) Run(ctx context.Context) (code int, err error) {
	notice := command.NewNotice(o.Global)
	defer notice.End()
	receive, err := o.openStream(ctx)
	if err != nil {
		return codeTrouble, err
	}
	document := &DiffDocument{From: o.Request.GetFrom(), To: o.Request.GetTo(), Cluster: o.Cluster, Differences: []ItemDifference{}}
	text := diffText{w: o.Out, coloured: o.Live && o.Getenv("NO_COLOR") == ""}
	for {
		m, err := receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return codeTrouble, err
		}
		if live, ok := m.(*backupv1.DiffClusterResponse); ok {
			if live.GetCounts() == nil {
				notice.Show(fmt.Sprintf("%d objects of the cluster listed", live.GetListed()))
				continue
			}
			document.Messages = append(document.Messages, live.GetMessages()...)
		}
		document.Counts = newDiffCounts(m.GetCounts())
		if o.Output.IsText() {
			if len(m.GetDifferences()) > 0 {
				notice.End()
			}
			text.writeDifferences(m.GetDifferences())
		} else if err := document.addDifferences(m.GetDifferences()); err != nil {
			return codeTrouble, err
		}
		notice.Show(fmt.Sprintf("%d objects compared, still comparing", document.Counts.total()))
	}
	notice.End()
	if !o.Output.IsText() {
		return document.exitCode(), o.Output.Print(o.Out, document)
	}
	text.writeLine("", document.Counts.summary())
	for _, message := range document.Messages {
		text.writeLine("", "- "+message)
	}
	return document.exitCode(), text.err
}

// DiffDocument is what -o prints.
type DiffDocument struct {
	From string `json:"from"`
	To   string `json:"to,omitempty"`
	// Cluster stands for the second backup, and Messages are what could not be read of it.
	Cluster     bool             `json:"cluster,omitempty"`
	Messages    []string         `json:"messages,omitempty"`
	Counts      DiffCounts       `json:"counts"`
	Differences []ItemDifference `json:"differences"`
}

func (d *DiffDocument) exitCode() int {
	switch {
	case !d.Counts.isEqual():
		return codeDifferent
	case len(d.Messages) > 0:
		return codeTrouble
	}
	return command.CodeOK
}

// DiffCounts counts objects.
type DiffCounts struct {
	Added     int64 `json:"added"`
	Removed   int64 `json:"removed"`
	Changed   int64 `json:"changed"`
	Unchanged int64 `json:"unchanged"`
}

// ItemDifference is an object that differs.
type ItemDifference struct {
	Change      string            `json:"change"`
	Group       string            `json:"group,omitempty"`
	Kind        string            `json:"kind"`
	Namespace   string            `json:"namespace,omitempty"`
	Name        string            `json:"name"`
	FromVersion string            `json:"fromVersion,omitempty"`
	ToVersion   string            `json:"toVersion,omitempty"`
	Fields      []FieldDifference `json:"fields,omitempty"`
	MoreFields  bool              `json:"moreFields,omitempty"`
}

// FieldDifference is a field that differs. A value that was too long is a text that ends with its length.
type FieldDifference struct {
	Path   string          `json:"path"`
	From   json.RawMessage `json:"from,omitempty"`
	To     json.RawMessage `json:"to,omitempty"`
	Masked bool            `json:"masked,omitempty"`
}

func (d *DiffDocument) addDifferences(differences []*manifestv1.ItemDifference) error {
	for _, item := range differences {
		out := ItemDifference{
			Change: changeNames[item.GetChange()], Group: item.GetGroup(), Kind: item.GetKind(), Namespace: item.GetNamespace(), Name: item.GetName(),
			FromVersion: item.GetFromVersion(), ToVersion: item.GetToVersion(), MoreFields: item.GetMoreFields(),
		}
		for _, f := range item.GetFields() {
			from, err := rawValue(f.From)
			if err != nil {
				return err
			}
			to, err := rawValue(f.To)
			if err != nil {
				return err
			}
			out.Fields = append(out.Fields, FieldDifference{Path: f.GetPath(), From: from, To: to, Masked: f.GetMasked()})
		}
		d.Differences = append(d.Differences, out)
	}
	return nil
}

// rawValue returns a value as JSON, nil for one that is not there.
func rawValue(value *string) (json.RawMessage, error) {
	switch {
	case value == nil:
		return nil, nil
	case json.Valid([]byte(*value)):
		return json.RawMessage(*value), nil
	}
	return json.Marshal(*value)
}

func newDiffCounts(c *manifestv1.DiffCounts) DiffCounts {
	return DiffCounts{Added: c.GetAdded(), Removed: c.GetRemoved(), Changed: c.GetChanged(), Unchanged: c.GetUnchanged()}
}

func (c DiffCounts) isEqual() bool { return c.Added+c.Removed+c.Changed == 0 }

func (c DiffCounts) total() int64 { return c.Added + c.Removed + c.Changed + c.Unchanged }

func (c DiffCounts) summary() string {
	if c.isEqual() {
		return fmt.Sprintf("No differences, %d objects compared.", c.total())
	}
	return fmt.Sprintf("%d added, %d removed, %d changed, %d unchanged.", c.Added, c.Removed, c.Changed, c.Unchanged)
}
