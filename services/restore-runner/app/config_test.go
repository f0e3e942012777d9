package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

func TestTheZeroConfigIsThatOfTheFlags(t *testing.T) {
	var zero, flags Config
	flags.BindFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	require.NoError(t, zero.complete())
	require.NoError(t, flags.complete())
	zero.Plugins, flags.Plugins = flags.Plugins, zero.Plugins
	flags.Plugins = zero.Plugins
	require.Equal(t, flags, zero)
}

// --claim-timeout=-5s became 30s without an error.
func TestAValueThatIsTooSmallIsRefused(t *testing.T) {
	for flag, change := range map[string]func(*Config){
		"--concurrent-jobs":                func(c *Config) { c.Concurrency = -1 },
		"--claim-timeout":                  func(c *Config) { c.ClaimTimeout = -5 * time.Second },
		"--terminating-resource-timeout":   func(c *Config) { c.TerminatingTimeout = -1 },
		"--resource-timeout":               func(c *Config) { c.ResourceTimeout = -1 },
		"--additional-items-ready-timeout": func(c *Config) { c.ReadyTimeout = -1 },
		"--store-patience":                 func(c *Config) { c.StorePatience = -1 },
	} {
		var c Config
		change(&c)
		var refused *errgrpc.FieldError
		require.ErrorAs(t, c.complete(), &refused)
		require.Equal(t, flag, refused.Field)
	}
}
