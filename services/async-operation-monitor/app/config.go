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
const Name = "async-operation-monitor"

// Ports are the service's default ports.
func Ports() service.Ports { return service.Ports{GRPC: 7444, HTTP: 8444} }

// leastFrequency bounds how often an operation is asked about.
const leastFrequency = 200 * time.Millisecond

// Config is the service's configuration; BindFlags states the defaults.
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
	// Stall is after how long without progress an operation is reported; 0 is never.
	Stall time.Duration
	// Plugins bounds what plugins may cost.
	Plugins pluginhost.Flags

	frequencies, timeouts map[string]time.Duration
}

// BindFlags adds the service's own flags.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.Frequency, "item-operation-sync-frequency", 10*time.Second, "how often an operation is asked about, at least 200ms")
	fs.StringSliceVar(&c.Frequencies, "item-operation-sync-frequency-override", nil, "another frequency for the operations of an action, action=duration, separated by commas")
	fs.StringSliceVar(&c.Timeouts, "item-operation-timeout-override", nil, "another timeout for the operations of an action than that of their backup or restore, action=duration, separated by commas")
	fs.DurationVar(&c.Grace, "item-operation-cancel-grace-period", time.Minute, "how long a cancelled operation has to end before it fails, at least 1s")
	fs.DurationVar(&c.Stall, "item-operation-stall-timeout", 30*time.Minute, "after how long without progress an operation is reported; 0 is never")
	c.Plugins.BindFlags(fs)
}

// validate checks the settings of this service and reads the overrides; errors name the flag.
func (c *Config) validate() error {
	var frequencies, timeouts error
	c.frequencies, frequencies = parseOverrides("--item-operation-sync-frequency-override", c.Frequencies, leastFrequency)
	c.timeouts, timeouts = parseOverrides("--item-operation-timeout-override", c.Timeouts, time.Second)
	return errors.Join(
		service.CheckDurations(
			service.Duration{Flag: "item-operation-sync-frequency", Value: c.Frequency, Least: leastFrequency},
			service.Duration{Flag: "item-operation-cancel-grace-period", Value: c.Grace, Least: time.Second},
			service.Duration{Flag: "item-operation-stall-timeout", Value: c.Stall, Off: true},
		),
		frequencies, timeouts, c.Plugins.Validate(),
	)
}

// parseOverrides reads a list of action=duration.
func parseOverrides(flag string, list []string, least time.Duration) (map[string]time.Duration, error) {
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
