package app

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
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

// Config is the configuration of the service; BindFlags states the defaults.
type Config struct {
	service.Base
	// Workers is the number of lists one backup reads at once.
	Workers int
	// PartBytes (compressed) and PartItems are when a part is closed and made durable: what is not
	// is lost with the process.
	PartBytes int64
	PartItems int
	// Jobs is the number of backups this process runs at once. The queue limits how many
	// run at all.
	Jobs int
	// ClaimTimeout is how long a silent holder keeps its claims.
	ClaimTimeout time.Duration
	// BlockWorkers is the number of item blocks one backup processes at once.
	BlockWorkers int
	// Plugins bounds what plugins may cost.
	Plugins pluginhost.Flags
	// ConsistentCut is CutAuto or CutOff.
	ConsistentCut string
	// PlanLifetime is how long plans of dry runs are kept.
	PlanLifetime time.Duration
	// StorePatience is how long an unreachable bucket is waited for before a backup fails.
	StorePatience time.Duration
	// VolumeMover is which program serves PodVolumeBackups, a podvolume.Mover.
	VolumeMover string
	// FsBackupTimeout is how long post hooks wait for file-system backups.
	FsBackupTimeout time.Duration
	// Operations are about those that live in the processes of plugins.
	Operations operationhome.Flags
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Workers, "workers", 4, "lists one backup reads at once")
	fs.Int64Var(&c.PartBytes, "part-bytes", 8<<20, "compressed size at which a part of a backup is made durable")
	fs.IntVar(&c.PartItems, "part-items", 2000, "number of objects at which a part of a backup is made durable")
	service.BindConcurrency(fs, &c.Jobs, 10, "jobs", "backups")
	fs.IntVar(&c.BlockWorkers, "item-block-worker-count", 1, "item blocks that one backup processes with its actions at once")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", 30*time.Second, "how long a silent runner keeps its backups")
	fs.StringVar(&c.ConsistentCut, "consistent-cut", CutAuto, "auto: list everything at one revision; off: each kind at its newest")
	fs.DurationVar(&c.PlanLifetime, "plan-lifetime", 7*24*time.Hour, "how long the plans of dry runs are kept")
	fs.StringVar(&c.VolumeMover, "volume-mover", string(podvolume.MoverHoldfast), "which program moves the data of volumes: holdfast (volume-mover) or velero (its node-agent)")
	fs.DurationVar(&c.FsBackupTimeout, "fs-backup-timeout", podvolume.DefaultTimeout, "how long post hooks wait for the file-system backups of their Pods, which are cancelled then")
	c.Operations.BindFlags(fs)
	fs.DurationVar(&c.StorePatience, "store-patience", 15*time.Minute, "how long an unreachable bucket is waited for before a backup fails")
}

// validate checks the settings of this service; errors name the flag.
func (c *Config) validate() error {
	errs := []error{
		service.CheckCounts(
			service.Count{Flag: "workers", Value: c.Workers, Most: 64},
			service.Count{Flag: "part-items", Value: c.PartItems, Most: 100_000},
			service.Count{Flag: service.ConcurrencyFlag, Value: c.Jobs, Most: 1000},
			service.Count{Flag: "item-block-worker-count", Value: c.BlockWorkers, Most: 64},
		),
		service.CheckDurations(
			service.Duration{Flag: "claim-timeout", Value: c.ClaimTimeout, Least: time.Second},
			service.Duration{Flag: "plan-lifetime", Value: c.PlanLifetime, Least: time.Minute},
			service.Duration{Flag: "store-patience", Value: c.StorePatience},
			service.Duration{Flag: "fs-backup-timeout", Value: c.FsBackupTimeout, Least: time.Second},
		),
		c.Plugins.Validate(), c.Operations.Validate(),
	}
	if c.PartBytes < 1 || c.PartBytes > 1<<30 {
		errs = append(errs, errgrpc.Field("--part-bytes", "must be 1 to 1 GiB, is %d", c.PartBytes))
	}
	if c.ConsistentCut != CutAuto && c.ConsistentCut != CutOff {
		errs = append(errs, errgrpc.Field("--consistent-cut", "must be auto or off, is %q", c.ConsistentCut))
	}
	if m := podvolume.Mover(c.VolumeMover); m != podvolume.MoverHoldfast && m != podvolume.MoverVelero {
		errs = append(errs, errgrpc.Field("--volume-mover", "must be holdfast or velero, is %q", c.VolumeMover))
	}
	return errors.Join(errs...)
}
