package history

import (
	"cmp"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Hooks are what was recorded of hooks. The zero value is that of no records. The methods that read
// it may be called concurrently.
type Hooks struct {
	pods map[checkpoint.Object]checkpoint.HookedPod // that began, and whose hooks have not all ended
	// hooks are those that were about to run; nil where it is not known how they ended.
	hooks map[checkpoint.Hook]*checkpoint.HookOutcome
}

// Add adds the next record.
func (h *Hooks) Add(rec *checkpoint.Record) {
	if len(rec.Hooked)+len(rec.Hooks)+len(rec.HookOutcomes) > 0 && h.pods == nil {
		h.pods, h.hooks = map[checkpoint.Object]checkpoint.HookedPod{}, map[checkpoint.Hook]*checkpoint.HookOutcome{}
	}
	for i := range rec.Hooked {
		h.pods[rec.Hooked[i].Object] = rec.Hooked[i]
	}
	for i := range rec.Hooks {
		h.hooks[rec.Hooks[i].Hook] = nil
	}
	for i := range rec.HookOutcomes {
		h.hooks[rec.HookOutcomes[i].Hook] = &rec.HookOutcomes[i]
	}
	for i := range rec.HooksEnded {
		delete(h.pods, rec.HooksEnded[i].Pod)
	}
}

// Begun reports whether the hooks of a Pod began.
func (h *Hooks) Begun(pod checkpoint.Object) bool {
	_, begun := h.pods[pod]
	return begun
}

// Ran reports whether a hook was about to run, and how it ended: nil if that is not known.
func (h *Hooks) Ran(hook checkpoint.Hook) (outcome *checkpoint.HookOutcome, announced bool) {
	outcome, announced = h.hooks[hook]
	return outcome, announced
}

// Open returns the Pods whose hooks began and have not all ended, by their names.
func (h *Hooks) Open() []checkpoint.HookedPod {
	return slices.SortedFunc(maps.Values(h.pods), func(a, b checkpoint.HookedPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// KeyOf is the key of an object that a record names.
func KeyOf(o *checkpoint.Object) itemset.Key { return newItemKey(o) }
