package operationhome

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// DefaultDrainTimeout is used if Flags.DrainTimeout is nil.
const DefaultDrainTimeout = time.Minute

// Flags are those of a service whose plugins' processes operations live in.
type Flags struct {
	// DrainTimeout is how long a stopping process waits for operations in its plugins' processes; 0 is
	// not at all, nil DefaultDrainTimeout.
	DrainTimeout *time.Duration
}

// Timeout is DrainTimeout or its default.
func (f *Flags) Timeout() time.Duration {
	if f.DrainTimeout == nil {
		return DefaultDrainTimeout
	}
	return *f.DrainTimeout
}

// BindFlags adds the flags.
func (f *Flags) BindFlags(fs *pflag.FlagSet) {
	timeout := f.Timeout()
	f.DrainTimeout = &timeout
	fs.DurationVar(f.DrainTimeout, "operation-drain-timeout", timeout, "how long a process that was told to stop waits for operations that live in its plugins' processes")
}

// Complete fills in the default and checks; an error names the flag.
func (f *Flags) Complete() error {
	timeout := f.Timeout()
	f.DrainTimeout = &timeout
	if timeout < 0 {
		return errgrpc.Field("--operation-drain-timeout", "must not be negative")
	}
	return nil
}
