package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// --claim-timeout=-5s became 30s without an error.
func TestAValueThatIsTooSmallIsRefused(t *testing.T) {
	for flag, change := range map[string]func(*Config){
		"--concurrent-jobs":                func(c *Config) { c.Concurrency = 0 },
		"--claim-timeout":                  func(c *Config) { c.ClaimTimeout = -5 * time.Second },
		"--terminating-resource-timeout":   func(c *Config) { c.TerminatingTimeout = -1 },
		"--resource-timeout":               func(c *Config) { c.ResourceTimeout = -1 },
		"--additional-items-ready-timeout": func(c *Config) { c.ReadyTimeout = -1 },
		"--plan-lifetime":                  func(c *Config) { c.PlanLifetime = 0 },
		"--store-patience":                 func(c *Config) { c.StorePatience = -1 },
	} {
		c := service.NewConfig[Config]()
		require.NoError(t, c.validate())
		change(&c)
		var refused *errgrpc.FieldError
		require.ErrorAs(t, c.validate(), &refused)
		require.Equal(t, flag, refused.Field)
	}
}
