package app

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/service"
)

// Name is the service's name.
const Name = "async-operation-monitor"

// Ports are the service's default ports.
func Ports() service.Ports { return service.Ports{GRPC: 7444, HTTP: 8444} }

const (
	defaultFrequency = 10 * time.Second // Velero 1.18's
	leastFrequency   = 200 * time.Millisecond
	defaultGrace     = time.Minute
	defaultStall     = 30 * time.Minute
)

// Config is the service's configuration. The zero value of a field means its default.
type Config struct {
	service.Base
	// Frequency is how often an operation is asked about, Frequencies are those of actions that have
	// another one, as "action=duration".
	Frequency   time.Duration
	Frequencies []string
	// Timeouts are of actions whose operations have another timeout than their job's, as
	// "action=duration".
	Timeouts []string
	// Grace is how long a cancelled operation has to end.
	Grace time.Duration
	// Stall is after how long without progress an operation is reported; 0 is never, nil the
	// default.
	Stall *time.Duration
	// Plugins bounds what plugins may cost.
	Plugins pluginhost.Flags

	frequencies, timeouts map[string]time.Duration
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.Frequency, "item-operation-sync-frequency", defaultFrequency, "how often an operation is asked about, at least 200ms")
	fs.StringSliceVar(&c.Frequencies, "item-operation-sync-frequency-override", nil, "another frequency for the operations of an action, action=duration, separated by commas")
	fs.StringSliceVar(&c.Timeouts, "item-operation-timeout-override", nil, "another timeout for the operations of an action than that of their backup or restore, action=duration, separated by commas")
	fs.DurationVar(&c.Grace, "item-operation-cancel-grace-period", defaultGrace, "how long a cancelled operation has to end before it fails, at least 1s")
	c.Stall = new(time.Duration)
	fs.DurationVar(c.Stall, "item-operation-stall-timeout", defaultStall, "after how long without progress an operation is reported; 0 is never")
	c.Plugins.BindFlags(fs)
}

// complete fills in defaults and checks; errors name the flag.
func (c *Config) complete() (err error) {
	err = service.CompleteDurations(
		service.Duration{Flag: "item-operation-sync-frequency", Value: &c.Frequency, Default: defaultFrequency, Least: leastFrequency},
		service.Duration{Flag: "item-operation-cancel-grace-period", Value: &c.Grace, Default: defaultGrace, Least: time.Second},
	)
	if err != nil {
		return err
	}
	if c.Stall == nil {
		c.Stall = ptr.To(defaultStall)
	}
	if *c.Stall < 0 {
		return errgrpc.Field("--item-operation-stall-timeout", "must not be negative")
	}
	if c.frequencies, err = overrides("--item-operation-sync-frequency-override", c.Frequencies, leastFrequency); err != nil {
		return err
	}
	if c.timeouts, err = overrides("--item-operation-timeout-override", c.Timeouts, time.Second); err != nil {
		return err
	}
	return c.Plugins.Validate()
}

// overrides reads a list of action=duration.
func overrides(flag string, list []string, least time.Duration) (map[string]time.Duration, error) {
	found := map[string]time.Duration{}
	for _, text := range list {
		action, value, _ := strings.Cut(text, "=")
		d, err := time.ParseDuration(value)
		switch {
		case action == "" || err != nil:
			return nil, errgrpc.Field(flag, "%q is not of the form action=duration", text)
		case d < least:
			return nil, errgrpc.Field(flag, "%q: must be at least %s", text, least)
		}
		if other, ok := found[action]; ok && other != d {
			return nil, errgrpc.Field(flag, "action %q has both %s and %s", action, other, d)
		}
		found[action] = d
	}
	return found, nil
}
