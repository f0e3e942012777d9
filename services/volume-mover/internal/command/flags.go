package command

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/maintain"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
)

// newMoveCommand returns `move` with `upload` and `restore`.
func (m *mover) newMoveCommand() *cobra.Command {
	var file string
	move := &cobra.Command{
		Use: "move", Short: "Transfer the data of one volume", Args: cobra.NoArgs,
		Long: "Transfer the data of one volume, as --request or a subcommand says.\n\n" +
			"Progress and the result are JSON, one line each. Exit codes: 0 Completed, 1 Failed or PartiallyFailed, 2 not a valid request, 3 Canceled.",
		RunE: func(c *cobra.Command, _ []string) error {
			req, err := readRequest(file)
			if err != nil {
				return fmt.Errorf("--request: %w", err)
			}
			return m.runRequest(c.Context(), req)
		},
	}
	move.Flags().StringVar(&file, "request", "", "file with the request as JSON")
	_ = move.MarkFlagRequired("request") // fails only for a flag that is not there
	move.AddCommand(m.newUploadCommand(), m.newRestoreCommand())
	return move
}

func readRequest(file string) (request.Request, error) {
	f, err := os.Open(file)
	if err != nil {
		return request.Request{}, err
	}
	defer func() { _ = f.Close() }()
	return request.Decode(f)
}

func (m *mover) newUploadCommand() *cobra.Command {
	req, u := request.Default(), request.DefaultUpload()
	req.Upload = &u
	c := &cobra.Command{
		Use: "upload", Short: "Store a directory or block device as a snapshot", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return m.runRequest(c.Context(), req) },
	}
	f := c.Flags()
	bindCommon(f, &req)
	f.StringVar(&u.Source, "source", "", "directory or block device to read")
	f.StringVar(&u.Pod, "pod", "", "Pod whose volume it is; without one it is the volume of a CSI snapshot")
	f.StringVar(&u.Volume, "volume", "", "name of the claim, or of the Pod's volume if it has none")
	f.StringVar(&u.ClaimUID, "claim-uid", "", "UID of the claim, by which the earlier snapshot is found")
	f.StringVar(&u.OperationID, "operation-id", "", "ID of the operation that the snapshot is taken for; not with --pod")
	f.BoolVar(&u.CreateRepository, "create-repository", false, "create the repository if there is none")
	f.DurationVar(&u.CheckpointInterval.Duration, "checkpoint-interval", u.CheckpointInterval.Duration, "how much time of work a kill may cost")
	return c
}

func (m *mover) newRestoreCommand() *cobra.Command {
	req, r := request.Default(), request.Restore{}
	req.Restore = &r
	c := &cobra.Command{
		Use: "restore", Short: "Write a snapshot into a directory or block device", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return m.runRequest(c.Context(), req) },
	}
	f := c.Flags()
	bindCommon(f, &req)
	f.StringVar(&r.Snapshot, "snapshot", "", "ID of the snapshot")
	f.StringVar(&r.Target, "target", "", "directory or block device to write")
	f.BoolVar(&r.Overwrite, "overwrite", false, "let the directory hold entries; those that the snapshot has too are replaced")
	f.BoolVar(&r.DeleteExtra, "delete-extra", false, "remove the entries that the snapshot does not have; needs --overwrite")
	f.StringArrayVar(&r.Paths, "path", nil, "restore this file or directory of the snapshot alone; may be given again, needs --overwrite")
	f.StringVar(&r.DoneFile, "done-file", "", "file to make in .velero of the directory when all content is there: the UID of the Restore")
	return c
}

// newForgetCommand returns `forget`.
func (m *mover) newForgetCommand() *cobra.Command {
	req, r := request.Default(), request.Forget{}
	req.Forget = &r
	c := &cobra.Command{
		Use: "forget", Short: "Remove snapshots from the repository of a namespace", Args: cobra.NoArgs,
		Long: "Remove snapshots from the repository of a namespace. A snapshot or a repository that is not there counts as forgotten.\n\n" +
			"The result is one line of JSON. Exit codes are those of move.",
		RunE: func(c *cobra.Command, _ []string) error { return m.runRequest(c.Context(), req) },
	}
	bindCommon(c.Flags(), &req)
	c.Flags().StringArrayVar(&r.Snapshots, "snapshot", nil, "ID of a snapshot; may be given again")
	return c
}

// newMaintainCommand returns `maintain`.
func (m *mover) newMaintainCommand() *cobra.Command {
	req, r := request.Default(), request.Maintain{}
	req.Maintain = &r
	c := &cobra.Command{
		Use: "maintain", Short: "Maintain the repository of a namespace", Args: cobra.NoArgs,
		Long: "Maintain the repository of a namespace: merge its indexes, and remove what no snapshot uses any more. While another Holdfast does so, nothing is done.\n\n" +
			"The result is one line of JSON. Exit codes are those of move.",
		RunE: func(c *cobra.Command, _ []string) error { return m.runRequest(c.Context(), req) },
	}
	f := c.Flags()
	bindCommon(f, &req)
	f.StringVar(&r.Mode, "mode", maintain.ModeAuto, "quick (indexes), full (also what no snapshot uses), auto: full if that is due, else quick, or create: nothing but create the repository if there is none")
	f.DurationVar(&r.FullInterval.Duration, "full-interval", 24*time.Hour, "time between two full runs of mode auto; 0: never")
	f.StringVar(&r.Holder, "holder", "volume-mover maintain", "what others that use the bucket see as the one who maintains the repository")
	return c
}

func bindCommon(f *pflag.FlagSet, r *request.Request) {
	f.StringVar(&r.Location, "location", "", "file with the manifests of one BackupStorageLocation and the Secrets that it names")
	f.StringVar(&r.Namespace, "namespace", "", "namespace of the volume on the cluster where it is backed up")
	f.StringVar(&r.PasswordFile, "password-file", "", "file with the password of the repository")
	f.StringVar(&r.CacheDir, "cache-dir", "", "where the cache is made, and removed at the end; empty: the directory of temporary files")
	f.Int64Var(&r.CacheMiB, "cache-mib", r.CacheMiB, "bound of the cache")
	f.Int64Var(&r.MemoryMiB, "memory-mib", r.MemoryMiB, "what the process tries to take at most; 0: no limit")
	f.StringVar(&r.ResultFile, "result-file", "", "where the result is written too, cut to 4096 bytes: the termination log of a Pod")
	f.IntVar(&r.Parallel, "parallel", r.Parallel, "how many files are transferred at once")
}
