package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// Verification is what `backup verify` found, as -o prints it.
type Verification struct {
	Backup  string  `json:"backup"`
	Objects int64   `json:"objects"`
	Bytes   int64   `json:"bytes"`
	Rebuilt bool    `json:"rebuilt,omitempty"` // the backup has no manifest of its own
	Found   int64   `json:"found"`
	Faults  []Fault `json:"faults,omitempty"`
}

// Fault is one thing that is wrong. Kind is Missing, Extra, Differs, Unreadable or Manifest.
type Fault struct {
	Kind   string `json:"kind"`
	Path   string `json:"path,omitempty"`
	Detail string `json:"detail"`
}

// VerifyOptions are the flags of `backup verify`.
type VerifyOptions struct {
	ContentOptions
	Output command.Output
}

// NewVerifyCommand returns `backup verify`.
func NewVerifyCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := &VerifyOptions{ContentOptions: newContentOptions(g)}
	cmd := &cobra.Command{
		Use:   "verify NAME",
		Short: "Check that a backup is whole",
		Long: `Reads the tarball of a backup once and compares each object with the manifest:
hash, size and place, and what the two list. The service reads the tarball; nothing
of it comes to this machine.

The exit code is 0 where nothing is wrong, and 1 where something is.`,
		Example:           `  holdfast backup verify nightly`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: kind.CompleteNames(g),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var found *Verification
			err = o.withConnection(func() error {
				found, err = o.verifyBackup(cmd.Context(), args[0])
				return err
			})
			if err == nil {
				err = o.printResult(found)
			}
			if err == nil && found.Found > 0 {
				err = fmt.Errorf("backup %q has %d faults", found.Backup, found.Found)
			}
			return err
		},
	}
	o.Remote.BindFlags(cmd.Flags())
	o.Output.BindFlag(cmd.Flags())
	return cmd
}

func (o *VerifyOptions) verifyBackup(ctx context.Context, name string) (*Verification, error) {
	notice := command.NewNotice(o.Global)
	defer notice.End()
	stream, err := o.api.VerifyBackup(ctx, &manifestv1.VerifyBackupRequest{Backup: name})
	if err != nil {
		return nil, err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("backup %q: the service ended the verification without a result", name)
		}
		if err != nil {
			return nil, err
		}
		r := m.GetResult()
		if r == nil {
			notice.Show(fmt.Sprintf("%s of the tarball read", command.FormatAmount(m.GetProgress().GetBytes(), m.GetProgress().GetTotalBytes(), "bytes")))
			continue
		}
		v := &Verification{Backup: name, Objects: r.GetObjects(), Bytes: r.GetBytes(), Rebuilt: r.GetRebuilt(), Found: r.GetFound()}
		for _, f := range r.GetFaults() {
			kind := strings.TrimPrefix(f.GetKind().String(), "FAULT_KIND_")
			v.Faults = append(v.Faults, Fault{Kind: kind[:1] + strings.ToLower(kind[1:]), Path: f.GetPath(), Detail: f.GetDetail()})
		}
		return v, nil
	}
}

func (o *VerifyOptions) printResult(v *Verification) error {
	if !o.Output.IsText() {
		return o.Output.Print(o.Out, v)
	}
	if len(v.Faults) > 0 {
		rows := command.BuildRows(v.Faults, func(f Fault) []string { return []string{f.Kind, f.Path, f.Detail} })
		if err := o.Output.PrintTable(o.Out, []string{"FAULT", "PATH", "DETAIL"}, nil, rows); err != nil {
			return err
		}
	}
	if more := v.Found - int64(len(v.Faults)); more > 0 {
		o.Printf("and %d more\n", more)
	}
	against := "its manifest"
	if v.Rebuilt {
		against = "a manifest made of the tarball, since it has none of its own that can be read"
	}
	o.Printf("%d objects in %d bytes compared with %s: %d faults.\n", v.Objects, v.Bytes, against, v.Found)
	return nil
}
