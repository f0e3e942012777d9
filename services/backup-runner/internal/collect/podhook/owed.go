package podhook

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Opened are the Pods whose hooks this process began and whose post hooks it has not run, which is
// known without the bucket. The zero value is empty. Safe for concurrent use; a nil one holds
// nothing.
type Opened struct {
	mu   sync.Mutex
	pods map[checkpoint.Object]checkpoint.HookedPod
}

func (o *Opened) add(pod *checkpoint.HookedPod) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pods == nil {
		o.pods = map[checkpoint.Object]checkpoint.HookedPod{}
	}
	o.pods[pod.Object] = *pod
}

func (o *Opened) remove(pod checkpoint.Object) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pods, pod)
}

// Pods returns them by their names.
func (o *Opened) Pods() []checkpoint.HookedPod {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.pods), func(a, b checkpoint.HookedPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// owedAtOnce is for how many Pods RunOwed runs post hooks at once.
const owedAtOnce = 8

// RunOwed runs the post hooks of Pods, each bounded by its timeout, and logs how they ended. No
// intent is recorded: cfg needs no Set and no Intents.
func RunOwed(ctx context.Context, cfg Config, pods []checkpoint.HookedPod) ([]checkpoint.HooksEnded, error) {
	cfg.Intents = unrecorded{}
	runner := New(cfg)
	ended := make([]checkpoint.HooksEnded, len(pods))
	group, ctx := errgroup.WithContext(ctx)
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

// unrecorded are intents that are not recorded one by one.
type unrecorded struct{}

// Hook implements Intents.
func (unrecorded) Hook(context.Context, *checkpoint.HookedPod, *checkpoint.HookIntent) error {
	return nil
}

// SetResult implements Intents.
func (unrecorded) SetResult(context.Context) error { return nil }

// EndHook implements Intents.
func (unrecorded) EndHook(*checkpoint.HookOutcome) {}
