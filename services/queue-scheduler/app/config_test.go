package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func TestConfig(t *testing.T) {
	for flag, spoil := range map[string]func(*Config){
		"--concurrent-backups":             func(c *Config) { c.ConcurrentBackups = -1 },
		"--concurrent-restores":            func(c *Config) { c.ConcurrentRestores = -1 },
		"--location-timeout":               func(c *Config) { c.LocationTimeout = -time.Second },
		"--default-backup-ttl":             func(c *Config) { c.DefaultBackupTTL = -time.Second },
		"--default-item-operation-timeout": func(c *Config) { c.DefaultItemOperationTimeout = -time.Second },
		"--resource-timeout":               func(c *Config) { c.ResourceTimeout = -time.Second },
		"--priority-ageing":                func(c *Config) { c.PriorityAgeing = -time.Second },
		"--duty-timeout":                   func(c *Config) { c.DutyTimeout = time.Millisecond },
		"--plugin-storage-timeout":         func(c *Config) { c.Plugins.StorageTimeout = time.Millisecond },
	} {
		c := service.NewConfig[Config]()
		require.NoError(t, c.validate())
		spoil(&c)
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, c.validate(), &field)
		require.Equal(t, flag, field.Field)
	}
}
