package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// maxRunners keeps a typing error from taking the machine down.
const maxRunners = 64

// Options are the flags of `up`.
type Options struct {
	*command.Global
	Config Config
}

// NewCommand returns `up`.
func NewCommand(g *command.Global) *cobra.Command {
	services := serviceKinds()
	o := &Options{Global: g}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the whole server on this machine",
		Long: `Runs all services and an embedded NATS server in this process, on 127.0.0.1.
Custom resource definitions are installed or completed; a storage location in the
data directory is created when there is none. Ctrl-C or SIGTERM stops in order;
started again with the same data directory it resumes where it was.

File-system backups of volumes need a location in S3, since no Pod can mount the
data directory, and --mover-image and --restore-wait-image.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := service.ApplyEnv(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			if err := o.Complete(); err != nil {
				return err
			}
			if artifacts := cmd.Flags().Lookup("artifact-address"); o.Config.FreePorts && !artifacts.Changed {
				if err := artifacts.Value.Set("127.0.0.1:0"); err != nil {
					return err
				}
			}
			if err := o.Validate(); err != nil {
				return err
			}
			o.Config.Log.Info("Starting services", "version", telemetry.Version(), "commit", telemetry.Commit(), "namespace", o.Config.Namespace)
			if err := runServices(cmd.Context(), o.Config, services); err != nil {
				return err
			}
			o.Config.Log.Info("Services stopped")
			return nil
		},
	}
	fs, c := cmd.Flags(), &o.Config
	fs.StringVar(&c.DataDir, "data-dir", "holdfast-data", "directory for everything kept on this machine")
	fs.StringVar(&c.PluginDir, "plugin-dir", "", "directory of plugin binaries")
	fs.IntVar(&c.Runners, "runners", 1, "backup-runners and restore-runners each; further ones listen on free ports")
	fs.BoolVar(&c.FreePorts, "free-ports", false, "listen on free ports instead of 7441-7447 and 8441-8448")
	fs.BoolVar(&c.AllowVelero, "allow-velero", false, "start even beside a running Velero server in the namespace")
	fs.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", telemetry.FormatText, "text or json")
	fs.StringSliceVar(&c.Features, "features", nil, "optional features to turn on, separated by commas")
	bindServices(fs, services)
	return cmd
}

// Complete fills in what does not come from up's own flags.
func (o *Options) Complete() error {
	c := &o.Config
	c.Kubeconfig, c.Out, c.Clock, c.Getenv, c.Home = o.Kubeconfig, o.Out, o.Clock, o.Getenv, o.Home
	var err error
	if c.Namespace, err = o.ServerNamespace(); err != nil {
		return err
	}
	if c.PluginDir != "" {
		if c.PluginDir, err = filepath.Abs(c.PluginDir); err != nil {
			return fmt.Errorf("--plugin-dir: %w", err)
		}
	}
	if c.Log, err = telemetry.NewLogger(o.ErrOut, c.LogLevel, c.LogFormat); err != nil {
		return fmt.Errorf("--log-level, --log-format: %w", err)
	}
	telemetry.AdoptProcess(c.Log)
	return nil
}

// Validate refuses what could not work; every error names its flag.
func (o *Options) Validate() error {
	var errs []error
	if o.Context != "" {
		errs = append(errs, errors.New("--kubecontext: up uses the current context of the kubeconfig file"))
	}
	if o.Config.DataDir == "" {
		errs = append(errs, errors.New("--data-dir: must not be empty"))
	}
	if o.Config.Runners < 1 || o.Config.Runners > maxRunners {
		errs = append(errs, fmt.Errorf("--runners: %d is not 1 to %d", o.Config.Runners, maxRunners))
	}
	return errors.Join(errs...)
}
