package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/files"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
)

// newFilesCommand returns `files` with `list`, `read` and `wait`.
func (m *mover) newFilesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "files", Short: "Read single files of a backup's volumes, for the service volume-mover",
		Long: "Read single files of a backup's volumes. The answer on stdout is messages of holdfast.volume.v1.VolumeService, each behind its length, and an empty one at the end.",
	}
	c.AddCommand(
		m.newFilesReadCommand("list", "List volumes of a backup, or a directory of one of them", (*files.Reader).List),
		m.newFilesReadCommand("read", "Read a file of a volume", (*files.Reader).Read),
		newFilesWaitCommand(),
	)
	return c
}

// filesAnswer writes the answer about a path.
type filesAnswer func(r *files.Reader, ctx context.Context, path string, out io.Writer) error

func (m *mover) newFilesReadCommand(name, short string, answer filesAnswer) *cobra.Command {
	req, volume := request.Default(), &volumev1.VolumeSelector{}
	r, path := &files.Reader{Volume: volume}, ""
	c := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			volume.Namespace = req.Namespace
			if err := m.readFiles(c.Context(), req, r, func(ctx context.Context) error { return answer(r, ctx, path, m.stdout) }); err != nil {
				_, _ = fmt.Fprintln(m.stderr, files.ErrorPrefix+err.Error())
				m.exit = files.ExitCode(err)
			}
			return nil
		},
	}
	f := c.Flags()
	bindCommon(f, &req)
	f.StringVar(&r.Backup, "backup", "", "name of the backup in the location")
	f.StringVar(&volume.Claim, "claim", "", "only the volume of this claim")
	f.StringVar(&volume.Pod, "pod", "", "only volumes of this Pod")
	f.StringVar(&volume.PodVolume, "volume", "", "only the volume of this name in its Pod")
	f.StringVar(&path, "path", "", "path in the volume")
	return c
}

// readFiles opens the location for answer, and repositories as they are asked for.
func (m *mover) readFiles(ctx context.Context, req request.Request, r *files.Reader, answer func(context.Context) error) error {
	limitMemory(req)
	at, err := m.openWorkspace(ctx, req, "warn")
	if err != nil {
		return err
	}
	defer at.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.Location = at.store
	r.Open = func(ctx context.Context, namespace string) (*repository.Repository, error) {
		req.Namespace = namespace
		return at.openRepository(ctx, req, cancel)
	}
	return answer(ctx)
}

// newFilesWaitCommand returns `files wait`, which keeps a mover Pod up for commands to be run in it.
func newFilesWaitCommand() *cobra.Command {
	var limit time.Duration
	c := &cobra.Command{
		Use: "wait", Short: "Do nothing, for a time or until a signal", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), limit)
			defer cancel()
			<-ctx.Done()
			return nil
		},
	}
	c.Flags().DurationVar(&limit, "for", time.Hour, "how long")
	return c
}
