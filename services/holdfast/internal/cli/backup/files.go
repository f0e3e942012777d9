package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// FilesOptions are the flags of `backup files` and of the commands below it.
type FilesOptions struct {
	*command.Global
	Remote command.RemoteOptions
	// Namespace is that of the volume in the backup.
	Namespace string
	Output    command.Output

	api     volumev1.VolumeServiceClient
	objects ContentOptions // for completion
}

// Volume is a volume of a backup that has files, as -o prints it.
type Volume struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Volume    string `json:"volume,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Snapshot  string `json:"snapshot"`
}

// File is an entry of a volume, as -o prints it.
type File struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Modified time.Time `json:"modified"`
}

// NewFilesCommand returns `backup files` with `cat` and `download`.
func NewFilesCommand(g *command.Global, kind *job.Kind[*velerov1.Backup]) *cobra.Command {
	o := newFilesOptions(g)
	cmd := &cobra.Command{
		Use:   "files BACKUP [VOLUME [PATH]]",
		Short: "List, print and save files of volumes in a backup",
		Long: `Lists the volumes of a backup whose files were stored, or a directory of one of
them. VOLUME is the name of a claim, or POD/VOLUME for a volume of a Pod that is no
claim. No volume is restored: a Pod in the server's namespace reads the backup's
repository, which takes some seconds to start.

Files are data of users: the server wants a right of its own for these commands.`,
		Example: `  holdfast backup files nightly
  holdfast backup files nightly data -n shop
  holdfast backup files nightly data etc/app -n shop
  holdfast backup files cat nightly data etc/app/config.yaml -n shop
  holdfast backup files download nightly web-0/scratch var/db.sqlite`,
		Args: cobra.RangeArgs(1, 3), //nolint:mnd // see Use
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &volumev1.ListFilesRequest{Backup: args[0], Volume: &volumev1.VolumeSelector{Namespace: o.Namespace}}
			if len(args) > 1 {
				req.Volume, req.Path = o.selectVolume(args[1]), "/"
			}
			if len(args) > 2 { //nolint:mnd // see Use
				req.Path = args[2]
			}
			return o.withConnection(func() error { return o.Run(cmd.Context(), req) })
		},
	}
	o.bindFlags(cmd, kind)
	o.Output.BindFlag(cmd.Flags())
	cmd.AddCommand(newFilesCatCommand(g, kind), newFilesDownloadCommand(g, kind))
	return cmd
}

func newFilesOptions(g *command.Global) *FilesOptions {
	return &FilesOptions{Global: g, Remote: command.RemoteVolumes(), objects: newContentOptions(g)}
}

// bindFlags adds what the commands share. --namespace hides the global flag of that name.
func (o *FilesOptions) bindFlags(cmd *cobra.Command, kind *job.Kind[*velerov1.Backup]) {
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "namespace of the volume in the backup, not of the server")
	o.Remote.BindFlags(cmd.Flags())
	o.objects.completeNamespaces(cmd)
	backups := kind.CompleteNames(o.Global)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return backups(cmd, args, typed)
		case 1:
			return o.completeClaims(cmd, args[0], typed)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeClaims offers the claims of the backup, in the namespace if there is one.
func (o *FilesOptions) completeClaims(cmd *cobra.Command, backup, typed string) ([]string, cobra.ShellCompDirective) {
	return o.objects.askNames(cmd, func(ctx context.Context) (names []string, err error) {
		page, err := o.objects.api.ListItems(ctx, &manifestv1.ListItemsRequest{
			Backup: backup, Kinds: []string{"persistentvolumeclaims"}, Namespace: o.Namespace, Name: typed + "*", PageSize: pageSize,
		})
		for _, item := range page.GetItems() {
			names = append(names, item.GetName())
		}
		return names, err
	})
}

// CompleteClaims offers the claims of a backup in a namespace, which a path follows, for a command that other flags than
// FilesOptions give both.
func CompleteClaims(g *command.Global, of func() (backup, namespace string)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		o := newFilesOptions(g)
		var backup string
		if backup, o.Namespace = of(); backup == "" || strings.Contains(typed, ":") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := o.completeClaims(cmd, backup, typed)
		for i := range names {
			names[i] += ":"
		}
		return names, directive | cobra.ShellCompDirectiveNoSpace
	}
}

// selectVolume reads CLAIM or POD/VOLUME.
func (o *FilesOptions) selectVolume(arg string) *volumev1.VolumeSelector {
	if pod, volume, ok := strings.Cut(arg, "/"); ok {
		return &volumev1.VolumeSelector{Namespace: o.Namespace, Pod: pod, PodVolume: volume}
	}
	return &volumev1.VolumeSelector{Namespace: o.Namespace, Claim: arg}
}

// withConnection connects for the time of run, and makes its error one for people.
func (o *FilesOptions) withConnection(run func() error) error {
	conn, err := o.Remote.Connect(o.Global)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	o.api = volumev1.NewVolumeServiceClient(conn)
	return o.Remote.Explain(run())
}

// Run lists volumes or files.
func (o *FilesOptions) Run(ctx context.Context, req *volumev1.ListFilesRequest) error {
	stream, err := o.api.ListFiles(ctx, req)
	if err != nil {
		return err
	}
	volumes, files := []Volume{}, []File{}
	m, err := awaitFirst(o.Global, stream.Recv)
	for ; err == nil; m, err = stream.Recv() {
		if v := m.GetVolume(); v != nil {
			volumes = append(volumes, Volume{Namespace: v.GetNamespace(), Claim: v.GetClaim(), Pod: v.GetPod(), Volume: v.GetPodVolume(), Size: v.GetSize(), Snapshot: v.GetSnapshotId()})
		} else {
			files = append(files, newFile(m.GetFile()))
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if req.GetPath() == "" {
		return o.printVolumes(req.GetBackup(), volumes)
	}
	return o.printFiles(files)
}

func newFile(f *volumev1.File) File {
	return File{
		Name: f.GetName(), Type: strings.ToLower(strings.TrimPrefix(f.GetType().String(), "FILE_TYPE_")), Size: f.GetSize(), Mode: fmt.Sprintf("%04o", f.GetMode()),
		UID: f.GetUid(), GID: f.GetGid(), Modified: time.Unix(0, f.GetModified()).UTC(),
	}
}

func (o *FilesOptions) printVolumes(backup string, volumes []Volume) error {
	switch {
	case !o.Output.IsText():
		return o.Output.Print(o.Out, volumes)
	case len(volumes) == 0:
		o.Printf("No volume of backup %q has files.\n", backup)
		return nil
	}
	rows := make([][]string, len(volumes))
	for i, v := range volumes {
		size := ""
		if v.Size > 0 {
			size = strconv.FormatInt(v.Size, 10)
		}
		rows[i] = []string{v.Namespace, v.Claim, v.Pod, v.Volume, size}
	}
	return o.Output.PrintTable(o.Out, []string{"NAMESPACE", "CLAIM", "POD", "VOLUME", "SIZE"}, nil, rows)
}

func (o *FilesOptions) printFiles(files []File) error {
	if !o.Output.IsText() {
		return o.Output.Print(o.Out, files)
	}
	rows := make([][]string, len(files))
	for i, f := range files {
		rows[i] = []string{f.Type, f.Mode, fmt.Sprintf("%d:%d", f.UID, f.GID), strconv.FormatInt(f.Size, 10), command.FormatTime(new(metav1.NewTime(f.Modified))), quoteName(f.Name)}
	}
	return o.Output.PrintTable(o.Out, []string{"TYPE", "MODE", "OWNER", "SIZE", "MODIFIED", "NAME"}, nil, rows)
}

// quoteName quotes a name that a terminal would not show as it is, or that looks quoted.
func quoteName(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.TrimSpace(name) != name {
		return quoted
	}
	return name
}
