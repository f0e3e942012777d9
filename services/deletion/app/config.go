package app

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// Name is the service's name.
const Name = "deletion"

// Ports are the service's default ports.
func Ports() service.Ports { return service.Ports{GRPC: 7446, HTTP: 8446} }

// Config is the service's configuration; BindFlags states the defaults.
type Config struct {
	service.Base
	// CollectionFrequency is how often expired backups are looked for.
	CollectionFrequency time.Duration
	// ClaimTimeout is how long another instance must be silent before its deletions are taken over.
	ClaimTimeout time.Duration
	// Concurrency is how many backups this process deletes at once.
	Concurrency int
	// SweepInterval is how often each location is swept of what dead or deleted jobs left in it.
	SweepInterval time.Duration
	// DutyTimeout is how long another instance must be silent before its duties are taken over.
	DutyTimeout time.Duration
	// Plugins bounds what delete item actions may cost.
	Plugins pluginhost.Flags
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.CollectionFrequency, "garbage-collection-frequency", time.Minute, "how often expired backups are looked for")
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", 30*time.Second, "how long another instance must be silent before its work is taken over")
	service.BindConcurrency(fs, &c.Concurrency, 4, "concurrent-deletions", "deletions")
	fs.DurationVar(&c.SweepInterval, "sweep-interval", time.Hour, "how often locations are swept of what dead or deleted backups and restores left")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.DutyTimeout, "duty-timeout", leaderelection.DefaultTimeout, "how long another instance must be silent before its duties are taken over")
}

// validate checks the settings of this service; errors name the flag.
func (c *Config) validate() error {
	return errors.Join(
		service.CheckDurations(
			service.Duration{Flag: "garbage-collection-frequency", Value: c.CollectionFrequency, Least: time.Second},
			service.Duration{Flag: "claim-timeout", Value: c.ClaimTimeout, Least: time.Second},
			service.Duration{Flag: "sweep-interval", Value: c.SweepInterval, Least: time.Second},
			service.Duration{Flag: "duty-timeout", Value: c.DutyTimeout, Least: time.Second},
		),
		service.CheckCounts(service.Count{Flag: service.ConcurrencyFlag, Value: c.Concurrency, Most: 64}),
		c.Plugins.Validate(),
	)
}
