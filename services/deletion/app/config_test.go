package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

func TestConfig(t *testing.T) {
	var zero, flags Config
	require.NoError(t, zero.complete())
	fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
	flags.BindFlags(fs)
	require.NoError(t, fs.Parse(nil))
	require.Equal(t, zero, flags, "a zero Config and no flags mean the same")
	for name, bad := range map[string]Config{
		"--garbage-collection-frequency": {CollectionFrequency: time.Millisecond},
		"--claim-timeout":                {ClaimTimeout: -time.Second},
		"--duty-timeout":                 {DutyTimeout: -time.Second},
		"--concurrent-jobs":              {Concurrency: -1},
		"--sweep-interval":               {SweepInterval: time.Millisecond},
		"--plugin-call-timeout":          {Plugins: pluginhost.Flags{CallTimeout: time.Millisecond}},
	} {
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, bad.complete(), &field)
		require.Equal(t, name, field.Field)
	}
}
