package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/service"
)

func TestConfigNamesTheFlag(t *testing.T) {
	for flag, spoil := range map[string]func(*Config){
		"--workers":                 func(c *Config) { c.Workers = 65 },
		"--part-bytes":              func(c *Config) { c.PartBytes = -1 },
		"--part-items":              func(c *Config) { c.PartItems = 1_000_000 },
		"--concurrent-jobs":         func(c *Config) { c.Jobs = 0 },
		"--claim-timeout":           func(c *Config) { c.ClaimTimeout = -5 * time.Second },
		"--consistent-cut":          func(c *Config) { c.ConsistentCut = "maybe" },
		"--item-block-worker-count": func(c *Config) { c.BlockWorkers = 65 },
		"--plugin-call-timeout":     func(c *Config) { c.Plugins.CallTimeout = 1 },
		"--store-patience":          func(c *Config) { c.StorePatience = -1 },
		"--volume-mover":            func(c *Config) { c.VolumeMover = "restic" },
		"--fs-backup-timeout":       func(c *Config) { c.FsBackupTimeout = 0 },
	} {
		c := service.NewConfig[Config]()
		require.NoError(t, c.validate())
		spoil(&c)
		require.ErrorContains(t, c.validate(), flag)
	}
}

func TestFlags(t *testing.T) {
	var c Config
	fs := pflag.NewFlagSet(Name, pflag.ContinueOnError)
	c.BindFlags(fs)
	require.NoError(t, fs.Parse([]string{"--workers=2", "--part-items=3", "--part-bytes=4096", "--consistent-cut=off", "--claim-timeout=2s", "--item-block-worker-count=3", "--plugin-call-timeout=2m"}))
	require.Equal(t, 2, c.Workers)
	require.Equal(t, 3, c.PartItems)
	require.EqualValues(t, 4096, c.PartBytes)
	require.Equal(t, CutOff, c.ConsistentCut)
	require.Equal(t, 2*time.Second, c.ClaimTimeout)
	require.Equal(t, 10, c.Jobs)
	require.Equal(t, 3, c.BlockWorkers)
	require.Equal(t, 2*time.Minute, c.Plugins.CallTimeout)
}
