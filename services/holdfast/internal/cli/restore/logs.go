package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/download"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
)

// LogsOptions are the flags of `restore logs`.
type LogsOptions struct {
	*global.Global
	Name     string
	Download download.Options
}

// NewLogsCommand returns `restore logs`.
func NewLogsCommand(g *global.Global) *cobra.Command {
	o := &LogsOptions{Global: g, Download: download.Options{Timeout: time.Minute}}
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the log of a restore",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			return o.Run(cmd.Context())
		},
	}
	o.Download.BindFlags(cmd.Flags())
	return cmd
}

// Run prints the log.
func (o *LogsOptions) Run(ctx context.Context) error {
	c, namespace, err := o.Client()
	if err != nil {
		return err
	}
	r, err := find(ctx, c, namespace, o.Name)
	if err != nil {
		return err
	}
	if phase := shownPhase(r); !hasLog(phase) {
		return fmt.Errorf("restore %q is %s: its log is available when its run is over", o.Name, phase)
	}
	where, err := location(ctx, c, r)
	if err != nil {
		return err
	}
	fetcher := &download.Fetcher{Client: c, Clock: o.Clock, Namespace: namespace, Options: o.Download}
	log, err := fetcher.Open(ctx, velerov1.DownloadTargetKindRestoreLog, o.Name, where)
	if err != nil {
		return err
	}
	_, err = io.Copy(o.Out, log)
	return errors.Join(err, log.Close())
}
