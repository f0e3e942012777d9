package service

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
)

// GoLeading adds a task that one replica does at a time: the one that holds the Lease of that name.
// A holder that ran with this timeout and is silent for so long is replaced; 0 means
// leaderelection.DefaultTimeout. It must be called before Run.
func (r *Runtime) GoLeading(name string, timeout time.Duration, run func(ctx context.Context) error) {
	config := leaderelection.Config{
		Reader: r.manager.GetAPIReader(), Client: r.manager.GetClient(), Namespace: r.base.Options.Namespace, Name: name,
		Instance: r.base.Instance, Timeout: timeout, Log: r.base.Log,
	}
	r.Go(name, func(ctx context.Context) error { return leaderelection.Run(ctx, config, run) })
}
