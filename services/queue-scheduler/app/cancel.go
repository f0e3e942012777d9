package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/cancellation"
)

// CancelConfig is how cancelled jobs are stopped.
type CancelConfig struct {
	// CancelDeadline is how long a runner has to stop a cancelled job before its claim is taken.
	CancelDeadline time.Duration
	// ClaimTimeout is the runners' --claim-timeout.
	ClaimTimeout time.Duration
}

func (c *CancelConfig) bindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.CancelDeadline, "cancel-deadline", time.Minute, "time a runner has to stop a cancelled job before it is taken from it, at least 1s")
	fs.DurationVar(&c.ClaimTimeout, "claim-timeout", 30*time.Second, "the runners' --claim-timeout, at least 1s")
}

// newCanceller builds what stops cancelled jobs.
func (a *App) newCanceller(counts cancellation.Counter) (*cancellation.Canceller, error) {
	c, rt := a.config, a.runtime
	reader := rt.Manager().GetAPIReader()
	counters, err := cancellation.NewMetrics(rt.Registry())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	canceller := cancellation.New(cancellation.Config{
		Reader: reader, Client: rt.Manager().GetClient(), Namespace: c.Options.Namespace, Deadline: c.CancelDeadline, DefaultTTL: c.DefaultBackupTTL, Events: rt.Fabric(), Recorder: rt.Manager().GetEventRecorder(Name), Metrics: counters, Counts: counts, Clock: c.Clock, Log: c.Log,
	})
	return canceller, canceller.Setup(rt.Manager(), Name+"-cancel")
}
