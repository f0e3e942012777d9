package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func TestConfig(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"--garbage-collection-frequency": func(c *Config) { c.CollectionFrequency = time.Millisecond },
		"--claim-timeout":                func(c *Config) { c.ClaimTimeout = -time.Second },
		"--duty-timeout":                 func(c *Config) { c.DutyTimeout = -time.Second },
		"--concurrent-jobs":              func(c *Config) { c.Concurrency = -1 },
		"--sweep-interval":               func(c *Config) { c.SweepInterval = time.Millisecond },
		"--plugin-call-timeout":          func(c *Config) { c.Plugins.CallTimeout = time.Millisecond },
	} {
		c := service.NewConfig[Config]()
		require.NoError(t, c.validate())
		spoil(&c)
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, c.validate(), &field)
		require.Equal(t, name, field.Field)
	}
}
