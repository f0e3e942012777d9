package restore

import (
	"context"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
)

// Run restores every object of the plan and returns when each has an outcome in the recorder and no
// Pod owes a hook, or with the cause of ctx's end, or with dispatch.ErrStopped. The error is never about single
// objects.
func Run(ctx context.Context, config Config) error {
	r, err := newRestoreRun(config)
	if err != nil {
		return err
	}
	defer r.hooks.Start(ctx)()
	recorder, stop := config.Recorder, r.stop
	for _, pass := range []func(context.Context) error{
		r.owners.Resume(config.History), r.definitions.RestoreAll, r.namespaces.CreateAll, r.restoreObjects, r.keeper.settleEndpoints,
	} {
		if err := pass(ctx); err != nil {
			return err
		}
	}
	if config.DryRun != nil {
		return nil
	}
	if err := r.awaitEnd(ctx); err != nil {
		return err
	}
	if c := recorder.Counts(); c.Done < c.Total && stop.Requested() {
		return dispatch.ErrStopped // what was waited for last has no outcome
	}
	return nil
}
