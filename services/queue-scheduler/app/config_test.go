package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

func TestConfig(t *testing.T) {
	var zero, flags Config
	require.NoError(t, zero.complete())
	fs := pflag.NewFlagSet(Name, pflag.ContinueOnError)
	flags.BindFlags(fs)
	require.NoError(t, fs.Parse(nil))
	require.Equal(t, zero, flags, "a zero Config and no flags mean the same")

	for flag, bad := range map[string]Config{
		"--concurrent-backups":             {ConcurrentBackups: -1},
		"--concurrent-restores":            {ConcurrentRestores: -1},
		"--location-timeout":               {LocationTimeout: -time.Second},
		"--default-backup-ttl":             {DefaultBackupTTL: -time.Second},
		"--default-item-operation-timeout": {DefaultItemOperationTimeout: -time.Second},
		"--resource-timeout":               {ResourceTimeout: -time.Second},
		"--priority-ageing":                {PriorityAgeing: ptr.To(-time.Second)},
		"--duty-timeout":                   {DutyTimeout: time.Millisecond},
		"--plugin-storage-timeout":         {Plugins: pluginhost.Flags{StorageTimeout: time.Millisecond}},
	} {
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, bad.complete(), &field)
		require.Equal(t, flag, field.Field)
	}
}
