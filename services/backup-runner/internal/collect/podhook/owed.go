package podhook

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// owedAtOnce is for how many Pods post hooks run at once that no block waits for.
const owedAtOnce = 8

// RunOwed runs the post hooks of Pods, each bounded by its timeout, and logs how they ended. No
// intent is recorded: cfg needs no Set and no Intents.
func RunOwed(ctx context.Context, cfg Config, pods []checkpoint.HookedPod) ([]checkpoint.HooksEnded, error) {
	cfg.Intents = unrecordedIntents{}
	runner := New(cfg)
	ended := make([]checkpoint.HooksEnded, len(pods))
	group, ctx := panics.NewGroup(ctx)
	group.SetLimit(owedAtOnce)
	for i := range pods {
		group.Go(func() error {
			pod := runner.Owed(&pods[i])
			err := runner.Post(ctx, pod)
			for _, e := range pod.Entries() {
				level := cfg.Log.InfoContext
				if e.Level != joblog.Info {
					level = cfg.Log.WarnContext
				}
				level(ctx, "post hook of a failed backup", "namespace", e.Namespace, "pod", e.Name, "message", e.Message, "error", e.Err)
			}
			ended[i] = pod.Ended()
			return err
		})
	}
	return ended, group.Wait()
}

// unrecordedIntents are intents that are not recorded one by one.
type unrecordedIntents struct{}

// Hook implements Intents.
func (unrecordedIntents) Hook(context.Context, *checkpoint.HookedPod, *checkpoint.HookIntent) error {
	return nil
}

// FlushOutcomes implements Intents.
func (unrecordedIntents) FlushOutcomes(context.Context) error { return nil }

// EndHook implements Intents.
func (unrecordedIntents) EndHook(*checkpoint.HookOutcome) {}
