package restore

import (
	"context"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
)

// Run restores every object of the plan and returns when each has an outcome in the recorder and no
// Pod owes a hook, or with the cause of ctx's end, or with dispatch.ErrStopped. The error is never about single
// objects.
func Run(ctx context.Context, config Config) error {
	r, err := newRun(config)
	if err != nil {
		return err
	}
	defer r.hooks.Start(ctx)()
	recorder, stop := config.Recorder, r.stop
	passes := []func(context.Context) error{r.owners.Resume(config.History), r.definitions.RestoreAll, r.namespaces.CreateAll, r.restoreObjects}
	if config.DryRun == nil {
		passes = append(passes, r.keeper.settleEndpoints, r.awaitEnd)
	}
	for _, pass := range passes {
		if err := pass(ctx); err != nil {
			return err
		}
	}
	if c := recorder.Counts(); c.Done < c.Total && stop.Requested() {
		return dispatch.ErrStopped // what was waited for last has no outcome
	}
	return nil
}
