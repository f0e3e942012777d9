package podhook

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Opened are the Pods whose hooks began and whose post hooks have not all run, as far as this process
// has it without the bucket: those that it began, and those of earlier holders whose records it read.
// The zero value is empty. Safe for concurrent use; a nil one holds nothing.
type Opened struct {
	mu   sync.Mutex
	pods map[checkpoint.Object]*openedHooks
}

// openedHooks is a Pod between its hooks. mu is locked while one of its hooks runs, and guards the rest.
type openedHooks struct {
	pod checkpoint.HookedPod

	mu      sync.Mutex
	changed bool // a pre hook began
	early   bool // its post hooks ran ahead of their turn, or were about to
	// ends are the post hooks whose commands ran to their end, by their index, and how.
	ends map[int]error
	// entries are what the post hooks that ran early logged.
	entries []joblog.Entry
}

// addPod adds a Pod, unless it is there; changed means that a pre hook of it began before.
func (o *Opened) addPod(pod *checkpoint.HookedPod, changed bool) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pods == nil {
		o.pods = map[checkpoint.Object]*openedHooks{}
	}
	if o.pods[pod.Object] == nil {
		o.pods[pod.Object] = &openedHooks{pod: *pod, changed: changed, ends: map[int]error{}}
	}
}

func (o *Opened) removePod(pod checkpoint.Object) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.pods, pod)
}

// openedPod returns a Pod; nil for one that is not there.
func (o *Opened) openedPod(pod checkpoint.Object) *openedHooks {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pods[pod]
}

// openedPods returns the Pods by their names.
func (o *Opened) openedPods() []*openedHooks {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.SortedFunc(maps.Values(o.pods), func(a, b *openedHooks) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
}

// Pods returns the Pods whose post hooks have not all run, by their names. It waits for hooks that
// run.
func (o *Opened) Pods() []checkpoint.HookedPod {
	var out []checkpoint.HookedPod
	for _, one := range o.openedPods() {
		one.mu.Lock()
		if !one.early || len(one.ends) < len(one.pod.Post) {
			out = append(out, one.pod)
		}
		one.mu.Unlock()
	}
	return out
}

// ranEarly reports whether the post hooks of the Pod ran ahead of their turn.
func (o *openedHooks) ranEarly() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.early
}

// earlyEntries returns what the post hooks that ran early logged.
func (o *openedHooks) earlyEntries() []joblog.Entry {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entries
}
