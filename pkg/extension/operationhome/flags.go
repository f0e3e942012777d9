package operationhome

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// Flags are those of a service whose plugins' processes operations live in.
type Flags struct {
	// DrainTimeout is how long a stopping process waits for operations in its plugins' processes; 0 is
	// not at all.
	DrainTimeout time.Duration
}

// BindFlags adds the flags with their defaults.
func (f *Flags) BindFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&f.DrainTimeout, "operation-drain-timeout", time.Minute, "how long a process that was told to stop waits for operations that live in its plugins' processes")
}

// Validate returns an error that names the flag.
func (f *Flags) Validate() error {
	if f.DrainTimeout < 0 {
		return errgrpc.Field("--operation-drain-timeout", "must not be negative, is %s", f.DrainTimeout)
	}
	return nil
}
