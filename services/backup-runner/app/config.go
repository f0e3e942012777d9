package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
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

const (
	defaultWorkers       = 4
	defaultPartItems     = collect.DefaultPartItems
	defaultJobs          = 10
	defaultBlockWorkers  = 1
	defaultClaimTimeout  = 30 * time.Second
	defaultStorePatience = 15 * time.Minute
)

// Config is the configuration of the service. The zero value of a field other than Base means its
// default.
type Config struct {
	service.Base
	// Workers is the number of lists one backup reads at once. Default 4.
	Workers int
	// PartBytes (compressed) and PartItems are when a part is closed and made durable: what is not
	// is lost with the process. Defaults 8 MiB and 2,000.
	PartBytes int64
	PartItems int
	// Jobs is the number of backups this process runs at once. Default 10; the queue limits how
	// many run at all.
	Jobs int
	// ClaimTimeout is how long a silent holder keeps its claims. Default 30 s.
	ClaimTimeout time.Duration
	// BlockWorkers is the number of item blocks one backup processes at once. Default 1, as in
	// Velero.
	BlockWorkers int
	// Plugins bounds what plugins may cost.
	Plugins pluginhost.Flags
	// Predecessors are earlier instances that are known to be gone.
	Predecessors []string
	// ConsistentCut is CutAuto, the default, or CutOff.
	ConsistentCut string
	// StorePatience is how long an unreachable bucket is waited for before a backup fails. Default
	// 15 min.
	StorePatience time.Duration
	// Operations are about those that live in the processes of plugins.
	Operations operationhome.Flags
}

// setDefaults fills what was left zero and has no bounds of its kind.
func (c *Config) setDefaults() {
	if c.PartBytes == 0 {
		c.PartBytes = 8 << 20
	}
	if c.ConsistentCut == "" {
		c.ConsistentCut = CutAuto
	}
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.setDefaults()
	fs.IntVar(&c.Workers, "workers", defaultWorkers, "lists one backup reads at once")
	fs.Int64Var(&c.PartBytes, "part-bytes", c.PartBytes, "compressed size at which a part of a backup is made durable")
	fs.IntVar(&c.PartItems, "part-items", defaultPartItems, "number of objects at which a part of a backup is made durable")
	service.BindConcurrency(fs, &c.Jobs, defaultJobs, "jobs", "backups")
	fs.IntVar(&c.BlockWorkers, "item-block-worker-count", defaultBlockWorkers, "item blocks that one backup processes with its actions at once")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", defaultClaimTimeout, "how long a silent runner keeps its backups")
	fs.StringVar(&c.ConsistentCut, "consistent-cut", c.ConsistentCut, "auto: list everything at one revision; off: each kind at its newest")
	c.Operations.BindFlags(fs)
	fs.DurationVar(&c.StorePatience, "store-patience", defaultStorePatience, "how long an unreachable bucket is waited for before a backup fails")
}

// complete fills in defaults and checks; errors name the flag.
func (c *Config) complete() error {
	c.setDefaults()
	err := service.CompleteCounts(
		service.Count{Flag: "workers", Value: &c.Workers, Default: defaultWorkers, Most: 64},
		service.Count{Flag: "part-items", Value: &c.PartItems, Default: defaultPartItems, Most: 100_000},
		service.Count{Flag: service.ConcurrencyFlag, Value: &c.Jobs, Default: defaultJobs, Most: 1000},
		service.Count{Flag: "item-block-worker-count", Value: &c.BlockWorkers, Default: defaultBlockWorkers, Most: 64},
	)
	if err != nil {
		return err
	}
	err = service.CompleteDurations(
		service.Duration{Flag: "claim-timeout", Value: &c.ClaimTimeout, Default: defaultClaimTimeout, Least: time.Second},
		service.Duration{Flag: "store-patience", Value: &c.StorePatience, Default: defaultStorePatience},
	)
	switch {
	case err != nil:
		return err
	case c.PartBytes < 1 || c.PartBytes > 1<<30:
		return errgrpc.Field("--part-bytes", "%d is not between 1 and 1 GiB", c.PartBytes)
	case c.ConsistentCut != CutAuto && c.ConsistentCut != CutOff:
		return errgrpc.Field("--consistent-cut", "%q is neither auto nor off", c.ConsistentCut)
	}
	if err := c.Plugins.Validate(); err != nil {
		return err
	}
	if err := c.Operations.Complete(); err != nil {
		return err
	}
	if err := c.Options.Validate(); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	return nil
}
