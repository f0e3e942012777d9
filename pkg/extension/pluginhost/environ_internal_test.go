package pluginhost

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// TestPluginsGetNoSecretsOfTheirServer: a plugin is a third party's binary and had the server's
// whole environment except for HOLDFAST_*, such as a database password.
func TestPluginsGetNoSecretsOfTheirServer(t *testing.T) {
	env := pluginEnviron(Config{
		Environ: []string{
			"PATH=/bin", "AWS_REGION=r", "https_proxy=p", "LC_ALL=C", "KUBECONFIG=old", "VELERO_NAMESPACE=old",
			"HOLDFAST_NATS_URL=nats://user:secret@host", "DB_PASSWORD=secret", "PATHS=x", "MINE=1", "VENDOR_A=2", "VENDOR=3", "odd",
		},
		AllowEnv: []string{"MINE", "VENDOR_*", "HOLDFAST_*"}, Namespace: "velero", Kubeconfig: "new",
	})
	require.Equal(t, []string{
		"PATH=/bin", "AWS_REGION=r", "https_proxy=p", "LC_ALL=C", "KUBECONFIG=old", "VELERO_NAMESPACE=old", "MINE=1", "VENDOR_A=2",
		"VELERO_NAMESPACE=velero", "KUBECONFIG=new", // the last one counts
	}, env)
}

func TestNamesOfVariablesAreChecked(t *testing.T) {
	var flags Flags
	flags.BindFlags(pflag.NewFlagSet("x", pflag.ContinueOnError))
	flags.Env = []string{"MINE", "VENDOR_*", "HOLD"}
	require.NoError(t, flags.Validate())
	for _, bad := range []string{"", "*", "A=b", "A*B", "A B", "HOLDFAST_NATS_URL", "HOLDFAST_*", "HOLD*", "H*"} {
		flags.Env = []string{bad}
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, flags.Validate(), &field, bad)
		require.Equal(t, "--plugin-env", field.Field)
	}
}
