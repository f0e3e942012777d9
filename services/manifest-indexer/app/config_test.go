package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func TestConfig(t *testing.T) {
	var flags Config
	fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
	flags.BindFlags(fs)
	require.NoError(t, flags.validate())
	require.NoError(t, fs.Parse([]string{"--backup-sync-period=-1s", "--store-validation-frequency=5s", "--artifact-url=https://host/base"}))
	require.NoError(t, flags.validate())
	require.Equal(t, 5*time.Second, flags.ValidationFrequency)

	for flag, spoil := range map[string]func(*Config){
		"--duty-timeout":           func(c *Config) { c.DutyTimeout = time.Millisecond },
		"--plugin-storage-timeout": func(c *Config) { c.Plugins.StorageTimeout = time.Millisecond },
	} {
		c := service.NewConfig[Config]()
		spoil(&c)
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, c.validate(), &field)
		require.Equal(t, flag, field.Field)
	}

	for _, bad := range []string{"host:8445", "ftp://x", "http://u:secret@host", "http://u:secret%@host", "http://host?x=y", "://"} {
		c := service.NewConfig[Config]()
		c.ArtifactURL = bad
		err := c.validate()
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &field, bad)
		require.Equal(t, "--artifact-url", field.Field)
		require.NotContains(t, err.Error(), "secret")
	}
}
