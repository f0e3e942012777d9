package app

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/duty"
	"github.com/holdfast-io/holdfast/pkg/grpcerr"
	"github.com/holdfast-io/holdfast/pkg/pluginhost"
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
	fs.IntVar(&c.Concurrency, "concurrent-deletions", defaultConcurrency, "how many backups are deleted at once")
	fs.DurationVar(&c.SweepInterval, "sweep-interval", defaultSweep, "how often locations are swept of what dead or deleted backups and restores left")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.DutyTimeout, "duty-timeout", duty.DefaultTimeout, "how long another instance must be silent before its duties are taken over")
}

// complete fills in defaults and checks; errors name the flag.
func (c *Config) complete() error {
	if c.CollectionFrequency == 0 {
		c.CollectionFrequency = defaultCollection
	}
	if c.ClaimTimeout == 0 {
		c.ClaimTimeout = defaultClaimTimeout
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.SweepInterval == 0 {
		c.SweepInterval = defaultSweep
	}
	if c.DutyTimeout == 0 {
		c.DutyTimeout = duty.DefaultTimeout
	}
	switch {
	case c.CollectionFrequency < time.Second:
		return grpcerr.Field("--garbage-collection-frequency", "must be at least 1s, is %s", c.CollectionFrequency)
	case c.ClaimTimeout < time.Second:
		return grpcerr.Field("--claim-timeout", "must be at least 1s, is %s", c.ClaimTimeout)
	case c.SweepInterval < time.Second:
		return grpcerr.Field("--sweep-interval", "must be at least 1s, is %s", c.SweepInterval)
	case c.DutyTimeout < time.Second:
		return grpcerr.Field("--duty-timeout", "must be at least 1s, is %s", c.DutyTimeout)
	case c.Concurrency < 1 || c.Concurrency > 64:
		return grpcerr.Field("--concurrent-deletions", "must be 1 to 64, is %d", c.Concurrency)
	}
	return c.Plugins.Validate()
}
