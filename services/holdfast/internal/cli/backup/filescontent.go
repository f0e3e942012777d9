package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// newFilesCatCommand returns `backup files cat`.
func newFilesCatCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := newFilesOptions(g)
	cmd := &cobra.Command{
		Use:     "cat BACKUP VOLUME PATH",
		Short:   "Print a file of a volume in a backup",
		Example: `  holdfast backup files cat nightly data etc/app/config.yaml -n shop`,
		Args:    cobra.ExactArgs(3), //nolint:mnd // see Use
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withConnection(func() error {
				return o.readFile(cmd.Context(), args, func(content io.Reader, _ *volumev1.File) error {
					_, err := io.Copy(o.Out, content)
					return err
				})
			})
		},
	}
	o.bindFlags(cmd, kind)
	return cmd
}

// newFilesDownloadCommand returns `backup files download`.
func newFilesDownloadCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o, to, force := newFilesOptions(g), "", false
	cmd := &cobra.Command{
		Use:     "download BACKUP VOLUME PATH",
		Short:   "Save a file of a volume in a backup",
		Example: `  holdfast backup files download nightly data var/db.sqlite -n shop -o restored.sqlite`,
		Args:    cobra.ExactArgs(3), //nolint:mnd // see Use
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				to = path.Base(path.Clean("/" + args[2]))
			}
			if _, err := os.Lstat(to); err == nil && !force {
				return fmt.Errorf("--output: %s exists; --force replaces it", quoteName(to))
			}
			return o.withConnection(func() error {
				return o.readFile(cmd.Context(), args, func(content io.Reader, f *volumev1.File) error {
					if err := saveFile(to, content); err != nil {
						return fmt.Errorf("save %s: %w", quoteName(to), err)
					}
					o.Printf("Saved %d bytes to %s\n", f.GetSize(), quoteName(to))
					return nil
				})
			})
		},
	}
	o.bindFlags(cmd, kind)
	cmd.Flags().StringVarP(&to, "output", "o", "", "file to write (default the name of the file, in this directory)")
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	return cmd
}

// readFile calls do with the content of a file.
func (o *FilesOptions) readFile(ctx context.Context, args []string, do func(io.Reader, *volumev1.File) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := o.api.ReadFile(ctx, &volumev1.ReadFileRequest{Backup: args[0], Volume: o.selectVolume(args[1]), Path: args[2]})
	if err != nil {
		return err
	}
	first, err := awaitFirst(o.Global, stream.Recv)
	if err != nil {
		return err
	}
	return do(&contentReader{receive: stream.Recv, data: first.GetData(), left: first.GetFile().GetSize()}, first.GetFile())
}

// contentReader reads the content of a file, which ends before its size with an error alone.
type contentReader struct {
	receive func() (*volumev1.ReadFileResponse, error)
	data    []byte
	left    int64
}

// errLength means that the service sent less or more than the file has.
var errLength = errors.New("the service did not send the file as long as it is")

func (r *contentReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		m, err := r.receive()
		if errors.Is(err, io.EOF) && r.left != 0 {
			return 0, errLength
		}
		if err != nil {
			return 0, err
		}
		r.data = m.GetData()
	}
	n := copy(p, r.data)
	r.data, r.left = r.data[n:], r.left-int64(n)
	if r.left < 0 {
		return 0, errLength
	}
	return n, nil
}
