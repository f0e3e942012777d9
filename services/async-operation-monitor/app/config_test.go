package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func TestOverridesAreByAction(t *testing.T) {
	var c Config
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.BindFlags(fs)
	require.NoError(t, fs.Parse([]string{
		"--item-operation-timeout-override=velero.io/csi=10h", "--item-operation-timeout-override", "a/b=1m,c/d=2m", "--item-operation-sync-frequency-override=a/b=1s",
		"--item-operation-stall-timeout=0",
	}))
	require.NoError(t, c.validate())
	require.Equal(t, map[string]time.Duration{"velero.io/csi": 10 * time.Hour, "a/b": time.Minute, "c/d": 2 * time.Minute}, c.timeouts)
	require.Equal(t, map[string]time.Duration{"a/b": time.Second}, c.frequencies)
	require.Zero(t, c.Stall)
}

func TestAValueThatCannotBeIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		flag   string
		change func(*Config)
	}{
		"a frequency of no time":  {"--item-operation-sync-frequency", func(c *Config) { c.Frequency = time.Millisecond }},
		"a negative grace period": {"--item-operation-cancel-grace-period", func(c *Config) { c.Grace = -1 }},
		"a negative stall":        {"--item-operation-stall-timeout", func(c *Config) { c.Stall = -time.Second }},
		"no duration":             {"--item-operation-timeout-override", func(c *Config) { c.Timeouts = []string{"a/b"} }},
		"no action":               {"--item-operation-timeout-override", func(c *Config) { c.Timeouts = []string{"=1m"} }},
		"two for one":             {"--item-operation-timeout-override", func(c *Config) { c.Timeouts = []string{"a=1m", "a=2m"} }},
		"too small":               {"--item-operation-sync-frequency-override", func(c *Config) { c.Frequencies = []string{"a=1ms"} }},
	} {
		t.Run(name, func(t *testing.T) {
			c := service.NewConfig[Config]()
			require.NoError(t, c.validate())
			tc.change(&c)
			var refused *errgrpc.FieldError
			require.ErrorAs(t, c.validate(), &refused)
			require.Equal(t, tc.flag, refused.Field)
		})
	}
}
