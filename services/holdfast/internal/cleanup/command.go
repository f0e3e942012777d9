package cleanup

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// defaultTimeout is below helm's, five minutes, so that a Job of the chart has said by then what runs.
const defaultTimeout = 4*time.Minute + 30*time.Second

// Options are the flags of `cleanup`.
type Options struct {
	*command.Global
	Timeout  time.Duration
	services []string
}

// NewCommand returns `cleanup`; ports are those of the services by name.
func NewCommand(g *command.Global, ports map[string]service.Ports) *cobra.Command {
	o := &Options{Global: g, services: slices.Sorted(maps.Keys(ports))}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what uninstalled services made for themselves in the server namespace",
		Long: `Removes the Leases of the services, the list of jobs that run (ConfigMap holdfast-queue)
and the key that signs links (Secret holdfast-artifact-key), once no service runs any more.
Objects of velero.io and what lies in buckets stay. Services that are installed again make
new ones, and continue the jobs that had not ended. The chart runs it after an uninstallation.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	cmd.Flags().DurationVar(&o.Timeout, "timeout", defaultTimeout, "how long to wait until Pods have ended and Leases are no longer renewed")
	return cmd
}

// Run removes the objects and prints their names.
func (o *Options) Run(ctx context.Context) error {
	c, namespace, err := o.Client()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	removed, err := Run(limited, Config{
		Client: c, Namespace: namespace, Services: o.services, Clock: o.Clock, Log: slog.New(slog.NewTextHandler(o.ErrOut, nil)),
	})
	for _, name := range removed {
		o.Printf("%s removed\n", name)
	}
	return err
}
