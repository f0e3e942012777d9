package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// versionOptions are the flags of `version`.
type versionOptions struct {
	*command.Global
	ClientOnly bool
	Timeout    time.Duration
}

// newVersionCommand returns `version`.
func newVersionCommand(g *command.Global) *cobra.Command {
	o := &versionOptions{Global: g}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the server",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.Run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&o.ClientOnly, "client-only", false, "do not ask the server")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Second, "how long to wait for the server's answer")
	return cmd
}

// Run prints the versions. A server that does not answer is an error, after the client's own
// version was printed.
func (o *versionOptions) Run(ctx context.Context) error {
	o.Printf("Client: %s\n", telemetry.BuildInfo())
	if o.ClientOnly {
		return nil
	}
	version, err := o.serverVersion(ctx)
	if err != nil {
		return err
	}
	o.Printf("Server: %s (as Velero's clients see it)\n", version)
	return nil
}

// serverVersion creates a ServerStatusRequest and waits for the answer; the server deletes it later.
func (o *versionOptions) serverVersion(ctx context.Context) (string, error) {
	c, namespace, err := o.Client()
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	request := &velerov1.ServerStatusRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "holdfast-cli-"}}
	if err := c.Create(limited, request); err != nil {
		return "", fmt.Errorf("ask the server: %w", err)
	}
	err = command.WaitUntil(limited, c, o.Clock, request, func() (bool, error) {
		return request.Status.Phase == velerov1.ServerStatusRequestPhaseProcessed, nil
	})
	switch {
	case err == nil:
		return request.Status.ServerVersion, nil
	case limited.Err() != nil && ctx.Err() == nil:
		return "", fmt.Errorf("the server in namespace %q did not answer within %s; is it running?", namespace, o.Timeout)
	default:
		return "", err
	}
}
