package service

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

// Duties are tasks that one replica does at a time, by name.
type Duties map[string]func(ctx context.Context) error

// GoLeading adds the service's duties. They have one Lease, which is named after the service: each
// of its own would be renewed on its own. A holder that ran with this timeout and is silent for so
// long is replaced; 0 means leaderelection.DefaultTimeout. A duty that fails ends the others, and
// the service. It must be called before Run, and once.
func (r *Runtime) GoLeading(timeout time.Duration, duties Duties) {
	config := leaderelection.Config{
		Reader: r.manager.GetAPIReader(), Client: r.manager.GetClient(), Namespace: r.base.Options.Namespace, Name: r.base.Name,
		Instance: r.base.Instance, Address: r.AdvertisedAddr(), Timeout: timeout, Log: r.base.Log,
	}
	term := func(ctx context.Context) error {
		group := rungroup.New(rungroup.Config{Log: r.base.Log})
		for name, run := range duties {
			group.Go(name, run)
		}
		return group.Run(ctx)
	}
	r.Go("duties", func(ctx context.Context) error { return leaderelection.Run(ctx, config, term) })
}
