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
	var zero Config
	require.NoError(t, zero.complete())
	var flags Config
	fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
	flags.BindFlags(fs)
	require.NoError(t, fs.Parse(nil))
	require.Equal(t, zero, flags, "a zero Config and no flags mean the same")

	require.NoError(t, fs.Parse([]string{"--backup-sync-period=-1s", "--store-validation-frequency=5s", "--artifact-url=https://host/base"}))
	require.NoError(t, flags.complete())
	require.Zero(t, flags.BackupSyncPeriod)
	require.Equal(t, 5*time.Second, flags.ValidationFrequency)

	field := new(errgrpc.FieldError)
	require.ErrorAs(t, (&Config{DutyTimeout: time.Millisecond}).complete(), &field)
	require.Equal(t, "--duty-timeout", field.Field)
	require.ErrorAs(t, (&Config{Plugins: pluginhost.Flags{StorageTimeout: time.Millisecond}}).complete(), &field)
	require.Equal(t, "--plugin-storage-timeout", field.Field)

	for _, bad := range []string{"host:8445", "ftp://x", "http://u:secret@host", "http://u:secret%@host", "http://host?x=y", "://"} {
		c := Config{ArtifactURL: bad}
		err := c.complete()
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, err, &field, bad)
		require.Equal(t, "--artifact-url", field.Field)
		require.NotContains(t, err.Error(), "secret")
	}
}
