package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/grpcerr"
	"github.com/holdfast-io/holdfast/pkg/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// Name is the service's name.
const Name = "backup-runner"

// Ports are the service's default ports.
var Ports = service.Ports{GRPC: 7442, HTTP: 8442}

// Values of Config.ConsistentCut.
const (
	CutAuto = "auto"
	CutOff  = "off"
)

// Config is what the service is told. The zero value of a field other than Base
// means its default.
type Config struct {
	service.Base
	// Workers is the number of lists one backup reads at once. Default 4.
	Workers int
	// PartBytes (compressed) and PartItems are when a part is closed and made
	// durable: what is not is lost with the process. Defaults 8 MiB and 1,000.
	PartBytes int64
	PartItems int
	// Jobs is the number of backups this process runs at once. Default 10;
	// the queue limits how many run at all.
	Jobs int
	// ClaimTimeout is how long a silent holder keeps its claims. Default 30 s.
	ClaimTimeout time.Duration
	// BlockWorkers is the number of item blocks one backup processes at once.
	// Default 1, as in Velero.
	BlockWorkers int
	// Plugins bounds what plugins may cost.
	Plugins pluginhost.Flags
	// Predecessors are earlier instances that are known to be gone.
	Predecessors []string
	// ConsistentCut is CutAuto, the default, or CutOff.
	ConsistentCut string
	// StorePatience is how long an unreachable bucket is waited for before a
	// backup fails. Default 15 min.
	StorePatience time.Duration
}

// setDefaults fills what was left zero.
func (c *Config) setDefaults() {
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.PartBytes == 0 {
		c.PartBytes = 8 << 20
	}
	if c.PartItems == 0 {
		c.PartItems = 1000
	}
	if c.Jobs == 0 {
		c.Jobs = 10
	}
	if c.BlockWorkers == 0 {
		c.BlockWorkers = 1
	}
	if c.ClaimTimeout == 0 {
		c.ClaimTimeout = 30 * time.Second
	}
	if c.ConsistentCut == "" {
		c.ConsistentCut = CutAuto
	}
	if c.StorePatience == 0 {
		c.StorePatience = 15 * time.Minute
	}
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.setDefaults()
	fs.IntVar(&c.Workers, "workers", c.Workers, "lists one backup reads at once")
	fs.Int64Var(&c.PartBytes, "part-bytes", c.PartBytes, "compressed size at which a part of a backup is made durable")
	fs.IntVar(&c.PartItems, "part-items", c.PartItems, "number of objects at which a part of a backup is made durable")
	fs.IntVar(&c.Jobs, "jobs", c.Jobs, "backups this process runs at once")
	fs.IntVar(&c.BlockWorkers, "item-block-worker-count", c.BlockWorkers, "item blocks that one backup processes with its actions at once")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", c.ClaimTimeout, "how long a silent runner keeps its backups")
	fs.StringVar(&c.ConsistentCut, "consistent-cut", c.ConsistentCut, "auto: list everything at one revision; off: each kind at its newest")
	fs.DurationVar(&c.StorePatience, "store-patience", c.StorePatience, "how long an unreachable bucket is waited for before a backup fails")
}

// Validate checks the service's own settings; errors name the flag.
func (c *Config) Validate() error {
	switch {
	case c.Workers < 1 || c.Workers > 64:
		return grpcerr.Field("--workers", "%d is not between 1 and 64", c.Workers)
	case c.PartBytes < 1 || c.PartBytes > 1<<30:
		return grpcerr.Field("--part-bytes", "%d is not between 1 and 1 GiB", c.PartBytes)
	case c.PartItems < 1 || c.PartItems > 100_000:
		return grpcerr.Field("--part-items", "%d is not between 1 and 100000", c.PartItems)
	case c.Jobs < 1 || c.Jobs > 1000:
		return grpcerr.Field("--jobs", "%d is not between 1 and 1000", c.Jobs)
	case c.BlockWorkers < 1 || c.BlockWorkers > 64:
		return grpcerr.Field("--item-block-worker-count", "%d is not between 1 and 64", c.BlockWorkers)
	case c.ClaimTimeout < time.Second:
		return grpcerr.Field("--claim-timeout", "%s is less than a second", c.ClaimTimeout)
	case c.ConsistentCut != CutAuto && c.ConsistentCut != CutOff:
		return grpcerr.Field("--consistent-cut", "%q is neither auto nor off", c.ConsistentCut)
	case c.StorePatience < 0:
		return grpcerr.Field("--store-patience", "%s is negative", c.StorePatience)
	}
	if err := c.Plugins.Validate(); err != nil {
		return err
	}
	if err := c.Options.Validate(); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	return nil
}
