package app

import (
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

const (
	defaultCollection   = time.Minute
	defaultClaimTimeout = 30 * time.Second
	defaultConcurrency  = 4
	defaultSweep        = time.Hour
	maxConcurrency      = 64
)

// Config is the service's configuration. The zero value of a field means its default.
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
	// Predecessors are earlier instances that are known to be gone.
	Predecessors []string
	// DutyTimeout is how long another instance must be silent before its duties are taken over.
	DutyTimeout time.Duration
	// Plugins bounds what delete item actions may cost.
	Plugins pluginhost.Flags
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.CollectionFrequency, "garbage-collection-frequency", defaultCollection, "how often expired backups are looked for")
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", defaultClaimTimeout, "how long another instance must be silent before its work is taken over")
	service.BindConcurrency(fs, &c.Concurrency, defaultConcurrency, "concurrent-deletions", "deletions")
	fs.DurationVar(&c.SweepInterval, "sweep-interval", defaultSweep, "how often locations are swept of what dead or deleted backups and restores left")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.DutyTimeout, "duty-timeout", leaderelection.DefaultTimeout, "how long another instance must be silent before its duties are taken over")
}

// complete fills in defaults and checks; errors name the flag.
func (c *Config) complete() error {
	err := service.CompleteDurations(
		service.Duration{Flag: "garbage-collection-frequency", Value: &c.CollectionFrequency, Default: defaultCollection, Least: time.Second},
		service.Duration{Flag: "claim-timeout", Value: &c.ClaimTimeout, Default: defaultClaimTimeout, Least: time.Second},
		service.Duration{Flag: "sweep-interval", Value: &c.SweepInterval, Default: defaultSweep, Least: time.Second},
		service.Duration{Flag: "duty-timeout", Value: &c.DutyTimeout, Default: leaderelection.DefaultTimeout, Least: time.Second},
	)
	if err != nil {
		return err
	}
	err = service.CompleteCounts(service.Count{Flag: service.ConcurrencyFlag, Value: &c.Concurrency, Default: defaultConcurrency, Most: maxConcurrency})
	if err != nil {
		return err
	}
	return c.Plugins.Validate()
}
