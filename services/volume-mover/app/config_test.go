package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service"
)

func TestAValueThatCannotBeIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		flag   string
		change func(*Config)
	}{
		"another mover":          {"--volume-mover", func(c *Config) { c.VolumeMover = "restic" }},
		"no mover on a node":     {"--movers-per-node", func(c *Config) { c.MoversPerNode = 0 }},
		"no mover at all":        {"--movers", func(c *Config) { c.Movers = 0 }},
		"no time to start":       {"--mover-prepare-timeout", func(c *Config) { c.PrepareTimeout = time.Millisecond }},
		"no time of the duties":  {"--duty-timeout", func(c *Config) { c.DutyTimeout = -1 }},
		"hasty maintenance":      {"--maintenance-interval", func(c *Config) { c.MaintenanceInterval = time.Second }},
		"maintenance backwards":  {"--full-maintenance-interval", func(c *Config) { c.FullMaintenanceInterval = -time.Hour }},
		"a relative directory":   {"--kubelet-root", func(c *Config) { c.KubeletRoot = "kubelet" }},
		"an unknown policy":      {"--mover-pull-policy", func(c *Config) { c.MoverPullPolicy = "Sometimes" }},
		"authorities of no kind": {"--mover-ca", func(c *Config) { c.MoverAuthorities = "authorities" }},
		"no quantity":            {"--mover-memory-limit", func(c *Config) { c.MemoryLimit = "much" }},
		"a quantity of nothing":  {"--mover-cpu-request", func(c *Config) { c.CPURequest = "0" }},
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

func TestResourcesOfMovers(t *testing.T) {
	c := service.NewConfig[Config]()
	c.CPULimit = "2"
	found, err := c.parseResources()
	require.NoError(t, err)
	require.Equal(t, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi"), corev1.ResourceCPU: resource.MustParse("10m")}, found.Requests)
	require.Equal(t, corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi"), corev1.ResourceCPU: resource.MustParse("2")}, found.Limits)
	c.MemoryLimit, c.MemoryRequest, c.CPULimit, c.CPURequest = "", "", "", ""
	found, err = c.parseResources()
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestMoversGetVariablesOfTheServiceAndItsAuthorities(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:secret@proxy:3128")
	t.Setenv("NOT_NAMED", "x")
	c := service.NewConfig[Config]()
	found := c.readEnvironment()
	require.Equal(t, "http://user:secret@proxy:3128", found["HTTPS_PROXY"])
	require.NotContains(t, found, "NOT_NAMED")
	c.MoverEnvironment = []string{"NOT_NAMED", "NOT_SET"}
	require.Equal(t, map[string]string{"NOT_NAMED": "x"}, c.readEnvironment())

	v, err := c.parseAuthorities()
	require.NoError(t, err)
	require.Empty(t, v)
	c.MoverAuthorities = "configmap/authorities"
	v, err = c.parseAuthorities()
	require.NoError(t, err)
	require.Equal(t, "authorities", v.ConfigMap.Name)
	c.MoverAuthorities = "secret/authorities"
	v, err = c.parseAuthorities()
	require.NoError(t, err)
	require.Equal(t, "authorities", v.Secret.SecretName)
}
