package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// DownloadOptions are the flags of `backup download`.
type DownloadOptions struct {
	*command.Global
	kind *job.Kind[*velerov1.Backup]

	Name     string
	Path     string
	Force    bool
	Download job.DownloadOptions
}

// NewDownloadCommand returns `backup download`.
func NewDownloadCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := &DownloadOptions{Global: g, kind: kind, Download: job.DownloadOptions{Timeout: time.Minute}}
	cmd := &cobra.Command{
		Use:               "download NAME",
		Short:             "Save the tarball of a backup",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: job.OneArg(kind.CompleteNames(g)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(args); err != nil {
				return err
			}
			return o.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Path, "output", "o", "", "file to write (default NAME-data.tar.gz)")
	cmd.Flags().BoolVar(&o.Force, "force", false, "replace an existing file")
	o.Download.BindFlags(cmd.Flags())
	return cmd
}

// Complete decides where to write and refuses to replace a file unasked.
func (o *DownloadOptions) Complete(args []string) error {
	o.Name = args[0]
	if o.Path == "" {
		o.Path = o.Name + "-data.tar.gz"
	}
	if _, err := os.Lstat(o.Path); err == nil && !o.Force {
		return fmt.Errorf("--output: %s exists; --force replaces it", o.Path)
	}
	return nil
}

// Run saves the tarball; the file appears only when it is complete.
func (o *DownloadOptions) Run(ctx context.Context) error {
	s, err := job.Connect(o.Global)
	if err != nil {
		return err
	}
	b, err := o.kind.Find(ctx, s, o.Name)
	if err != nil {
		return err
	}
	body, err := s.Fetcher(o.Download).Open(ctx, velerov1.DownloadTargetKindBackupContents, o.Name, b.Spec.StorageLocation)
	if err != nil {
		return err
	}
	err = errors.Join(saveFile(o.Path, body), body.Close())
	if err != nil {
		return fmt.Errorf("save %s: %w", o.Path, err)
	}
	o.Printf("Backup %q was saved to %s\n", o.Name, o.Path)
	return nil
}

func saveFile(path string, body io.Reader) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
