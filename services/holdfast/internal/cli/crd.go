package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// newCRDCommand returns `crd` with its subcommands.
func newCRDCommand(g *command.Global) *cobra.Command {
	cmd := &cobra.Command{Use: "crd", Short: "Work with the custom resource definitions of velero.io"}
	cmd.AddCommand(newCRDInstallCommand(g))
	return cmd
}

// crdInstallOptions are the flags of `crd install`.
type crdInstallOptions struct {
	*command.Global
	Timeout time.Duration
}

func newCRDInstallCommand(g *command.Global) *cobra.Command {
	o := &crdInstallOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Create missing definitions, and add missing versions, fields and values to present ones",
		Long: "Create missing definitions, and add missing versions, fields and enum values to present ones. Nothing is removed or\n" +
			"narrowed, so that objects that are stored stay as they are and a Velero beside it continues to work.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 2*time.Minute, "how long to wait until the cluster serves all kinds")
	return cmd
}

// Run installs the definitions, and returns once the cluster serves every kind.
func (o *crdInstallOptions) Run(ctx context.Context) error {
	cfg, err := kube.ConfigForContext(o.Kubeconfig, o.Context)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := crds.Install(limited, cfg); err != nil {
		return err
	}
	o.Printf("The cluster serves every kind of velero.io.\n")
	return nil
}
