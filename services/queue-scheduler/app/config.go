package app

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// Name is the service's name.
const Name = "queue-scheduler"

// Ports are the service's default ports.
func Ports() service.Ports { return service.Ports{GRPC: 7441, HTTP: 8441} }

// csiSnapshotTimeout has no flag in Velero either.
const csiSnapshotTimeout = 10 * time.Minute

// Config is the service's configuration; BindFlags states the defaults, Velero 1.18's where it has the
// flag.
type Config struct {
	service.Base
	CancelConfig
	// ConcurrentBackups is how many backups run at once, over all runners.
	ConcurrentBackups int
	// ConcurrentRestores is how many restores run at once, over all runners.
	ConcurrentRestores int
	// PriorityAgeing is after how long of waiting the class of a backup rises by one; 0 is never.
	PriorityAgeing time.Duration
	// LocationTimeout is how long a queued backup waits for an unavailable location before it is
	// FailedValidation.
	LocationTimeout time.Duration
	// DefaultBackupTTL is the ttl of backups that name none.
	DefaultBackupTTL time.Duration
	// DefaultItemOperationTimeout bounds asynchronous operations of jobs that name no limit.
	DefaultItemOperationTimeout time.Duration
	// DefaultSnapshotMoveData moves the data of CSI snapshots of backups that do not say.
	DefaultSnapshotMoveData bool
	// DefaultLocation is used where no location is marked as the default.
	DefaultLocation string
	// DefaultSnapshotLocations names the volume snapshot location of providers that have several,
	// as "provider:name".
	DefaultSnapshotLocations []string
	// DefaultVolumesToFsBackup is the defaultVolumesToFsBackup of backups that do not set it.
	DefaultVolumesToFsBackup bool
	// ResourceTimeout is noted on every backup, for plugins to read.
	ResourceTimeout time.Duration
	// DutyTimeout is after how long without a renewal of the Lease another replica makes the passes; a replica
	// that stops releases the Lease. At least 1 s.
	DutyTimeout time.Duration
	// ScheduleSkipImmediately is the skipImmediately of schedules that do not set it.
	ScheduleSkipImmediately bool
	// Plugins bounds what object store plugins may cost.
	Plugins pluginhost.Flags
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.ConcurrentBackups, "concurrent-backups", 1, "backups that may run at once")
	fs.IntVar(&c.ConcurrentRestores, "concurrent-restores", 4, "restores that may run at once")
	fs.DurationVar(&c.PriorityAgeing, "priority-ageing", 30*time.Minute, "waiting that raises the priority of a backup by one class, up to high; 0 is never")
	fs.DurationVar(&c.LocationTimeout, "location-timeout", time.Hour, "how long a queued backup waits for a storage location that is unavailable, before it fails validation")
	fs.DurationVar(&c.DefaultBackupTTL, "default-backup-ttl", 720*time.Hour, "how long backups that name no ttl are kept")
	fs.DurationVar(&c.DefaultItemOperationTimeout, "default-item-operation-timeout", 4*time.Hour, "longest time of asynchronous operations where none is named")
	fs.BoolVar(&c.DefaultSnapshotMoveData, "default-snapshot-move-data", false, "move the data of CSI snapshots to the bucket, where the backup does not say")
	fs.StringVar(&c.DefaultLocation, "default-backup-storage-location", "default", "location used when none is marked as the default")
	fs.StringSliceVar(&c.DefaultSnapshotLocations, "default-volume-snapshot-locations", nil, "volume snapshot locations used of providers that have several, provider:name, separated by commas")
	fs.BoolVar(&c.DefaultVolumesToFsBackup, "default-volumes-to-fs-backup", false, "take all volumes of Pods by file-system backup, where the backup does not say")
	fs.DurationVar(&c.ResourceTimeout, "resource-timeout", 10*time.Minute, "longest time plugins may wait for a resource; noted on every backup")
	fs.DurationVar(&c.DutyTimeout, "duty-timeout", 15*time.Second, "silence after which another replica takes over admission and schedules, at least 1s")
	c.CancelConfig.bindFlags(fs)
	c.Plugins.BindFlags(fs)
	fs.BoolVar(&c.ScheduleSkipImmediately, "schedule-skip-immediately", false, "skip the backup that is due when a schedule is created or resumed, where the schedule does not say")
}

// validate checks the settings of this service; errors name the flag.
func (c *Config) validate() error {
	_, err := c.snapshotLocations()
	errs := []error{
		service.CheckCounts(
			service.Count{Flag: "concurrent-backups", Value: c.ConcurrentBackups},
			service.Count{Flag: "concurrent-restores", Value: c.ConcurrentRestores},
		),
		service.CheckDurations(
			service.Duration{Flag: "priority-ageing", Value: c.PriorityAgeing, Off: true},
			service.Duration{Flag: "location-timeout", Value: c.LocationTimeout},
			service.Duration{Flag: "default-backup-ttl", Value: c.DefaultBackupTTL},
			service.Duration{Flag: "default-item-operation-timeout", Value: c.DefaultItemOperationTimeout},
			service.Duration{Flag: "resource-timeout", Value: c.ResourceTimeout},
			service.Duration{Flag: "duty-timeout", Value: c.DutyTimeout, Least: time.Second},
			service.Duration{Flag: "cancel-deadline", Value: c.CancelDeadline, Least: time.Second},
			service.Duration{Flag: "claim-timeout", Value: c.ClaimTimeout, Least: time.Second},
		),
		err, c.Plugins.Validate(),
	}
	if c.DefaultLocation == "" {
		errs = append(errs, errgrpc.Field("--default-backup-storage-location", "must not be empty"))
	}
	return errors.Join(errs...)
}

// snapshotLocations returns DefaultSnapshotLocations by provider.
func (c *Config) snapshotLocations() (map[string]string, error) {
	found := map[string]string{}
	for _, text := range c.DefaultSnapshotLocations {
		provider, name, _ := strings.Cut(text, ":")
		if provider == "" || name == "" {
			return nil, errgrpc.Field("--default-volume-snapshot-locations", "%q is not of the form provider:name", text)
		}
		if other := found[provider]; other != "" && other != name {
			return nil, errgrpc.Field("--default-volume-snapshot-locations", "provider %q has both %q and %q", provider, other, name)
		}
		found[provider] = name
	}
	return found, nil
}
