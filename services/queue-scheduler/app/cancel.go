package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/grpcerr"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/calloff"
)

// Defaults of the flags about cancelled jobs.
const (
	defaultCancelDeadline = time.Minute
	defaultClaimTimeout   = 30 * time.Second
)

// CancelConfig is how cancelled jobs are stopped. The zero value of a field means its default.
type CancelConfig struct {
	// CancelDeadline is how long a runner has to stop a cancelled job before the
	// job is taken from it.
	CancelDeadline time.Duration
	// ClaimTimeout is the runners' --claim-timeout.
	ClaimTimeout time.Duration
}

func (c *CancelConfig) bindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.CancelDeadline, "cancel-deadline", defaultCancelDeadline, "time a runner has to stop a cancelled job before it is taken from it, at least 1s")
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", defaultClaimTimeout, "the runners' --claim-timeout, at least 1s")
}

func (c *CancelConfig) complete() error {
	for _, d := range []struct {
		flag  string
		value *time.Duration
		def   time.Duration
	}{
		{"--cancel-deadline", &c.CancelDeadline, defaultCancelDeadline},
		{"--claim-timeout", &c.ClaimTimeout, defaultClaimTimeout},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < time.Second {
			return grpcerr.Field(d.flag, "must be at least 1s")
		}
	}
	return nil
}

// canceller builds what stops cancelled jobs.
func (a *App) canceller() (*calloff.Canceller, error) {
	c, rt := a.config, a.runtime
	reader := rt.Manager().GetAPIReader()
	counters, err := calloff.NewMetrics(rt.Registry())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	canceller := calloff.New(calloff.Config{
		Reader: reader, Client: rt.Manager().GetClient(), Namespace: c.Options.Namespace, Instance: c.Instance,
		Deadline: c.CancelDeadline, ClaimTimeout: c.ClaimTimeout, Locations: a.locations,
		WorkDir: rt.WorkDir(), Events: rt.Fabric(), Metrics: counters, Clock: c.Clock, Log: c.Log,
	})
	return canceller, canceller.Setup(rt.Manager(), Name+"-cancel")
}
