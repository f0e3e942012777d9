package service

import (
	"context"

	"github.com/spf13/pflag"
)

// Main is the body of a service's main function; its result is the exit code: 0 after an orderly stop, 1 after a failure,
// 2 for flags or variables that are wrong. bind adds the service's own flags. build is called with a context that ends at
// SIGINT or SIGTERM; a second signal ends the process at once.
func Main(name string, defaults Ports, bind func(*pflag.FlagSet), build func(ctx context.Context, base Base) (Runner, error)) int {
	return 1
}
