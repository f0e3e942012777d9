package app

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// Name of the service and its default ports.
const (
	Name     = "restore-runner"
	GRPCPort = 7443
	HTTPPort = 8443
)

// Config is what the service is built from; BindFlags states the defaults.
type Config struct {
	service.Base
	// Concurrency is how many restores run at once in this process.
	Concurrency int
	// ClaimTimeout is how long the Lease of a runner may stay unchanged before its restores are
	// taken over.
	ClaimTimeout time.Duration
	// TerminatingTimeout is how long a namespace, a definition or a volume with a snapshot that is
	// going away is waited for.
	TerminatingTimeout time.Duration
	// ResourceTimeout is how long a restored definition may take to be served.
	ResourceTimeout time.Duration
	// ReadyTimeout is how long an object waits until the additional items that an action asked for
	// are ready.
	ReadyTimeout time.Duration
	// Plugins are the limits of plugins.
	Plugins pluginhost.Flags
	// Operations are about those that live in the processes of plugins.
	Operations operationhome.Flags
	// StorePatience is how long a location that cannot be reached is waited for before a restore
	// fails.
	StorePatience time.Duration
	// RestoreWaitImage is the image of the init container in which restored Pods wait for the data of
	// their volumes.
	RestoreWaitImage string
	// PlanLifetime is how long the plans of dry runs are kept.
	PlanLifetime time.Duration
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	service.BindConcurrency(fs, &c.Concurrency, 4, "concurrency", "restores")
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", 30*time.Second, "time without a sign of life after which a runner's restores are taken over")
	fs.DurationVar(&c.TerminatingTimeout, "terminating-resource-timeout", 10*time.Minute, "longest wait for an object of the same name that is being deleted, or a volume with a snapshot that is going away")
	fs.DurationVar(&c.ResourceTimeout, "resource-timeout", 10*time.Minute, "longest wait for a restored definition or APIService to serve, or a webhook to answer")
	fs.DurationVar(&c.ReadyTimeout, "additional-items-ready-timeout", 10*time.Minute, "longest wait for the additional items of a plugin to be ready, where it does not say")
	fs.StringVar(&c.RestoreWaitImage, "restore-wait-image", "", "image of volume-mover, in which restored Pods wait for the data of their volumes; without one no data of file-system backups is restored")
	c.Plugins.BindFlags(fs)
	fs.DurationVar(&c.PlanLifetime, "plan-lifetime", 7*24*time.Hour, "how long the plans of dry runs are kept")
	c.Operations.BindFlags(fs)
	fs.DurationVar(&c.StorePatience, "store-patience", 15*time.Minute, "how long a location that cannot be reached is waited for before a restore fails")
}

// validate checks the settings of this service; errors name the flag.
func (c *Config) validate() error {
	return errors.Join(
		service.CheckCounts(service.Count{Flag: service.ConcurrencyFlag, Value: c.Concurrency, Most: 64}),
		service.CheckDurations(
			service.Duration{Flag: "claim-timeout", Value: c.ClaimTimeout, Least: time.Second},
			service.Duration{Flag: "terminating-resource-timeout", Value: c.TerminatingTimeout},
			service.Duration{Flag: "resource-timeout", Value: c.ResourceTimeout},
			service.Duration{Flag: "additional-items-ready-timeout", Value: c.ReadyTimeout},
			service.Duration{Flag: "store-patience", Value: c.StorePatience},
			service.Duration{Flag: "plan-lifetime", Value: c.PlanLifetime, Least: time.Minute},
		),
		c.Plugins.Validate(), c.Operations.Validate(),
	)
}
