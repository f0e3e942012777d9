package outcome

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// HookedPod is a Pod that the restore created and owes hooks from the record of its outcome on.
type HookedPod struct {
	UID types.UID `json:"uid"`
	// Since is when it was restored (Unix milliseconds).
	Since int64 `json:"since"`
	// Hooks are its hooks in their order.
	Hooks []HookCommand `json:"hooks,omitempty"`
	// Unusable reports that its annotations ask for a hook that cannot be run, about which there is
	// an error: it has no Hooks then.
	Unusable bool `json:"unusable,omitempty"`
}

// HookCommand is a command that runs in a restored Pod.
type HookCommand struct {
	// Field is where it comes from, as messages name it.
	Field     string   `json:"field"`
	Container string   `json:"container"`
	Command   []string `json:"command"`
	// Fail makes a failure an error, after which no other hook of the restore begins. Else it is a
	// warning.
	Fail    bool          `json:"fail,omitempty"`
	Timeout time.Duration `json:"timeout"`
	// Wait is its waitTimeout, which bounds the time from Since until the command begins; 0 is none.
	Wait time.Duration `json:"wait,omitempty"`
	// WaitDefault reports that it has no waitTimeout, and Wait bounds how long its container cannot be
	// used.
	WaitDefault bool `json:"waitDefault,omitempty"`
	// Ready waits for the container to be ready, not only for it to run.
	Ready bool `json:"ready,omitempty"`
}

// HookRun is about one hook of a Pod. It is recorded before the hook runs, and again when it has
// ended, is not to run any more, or did not run because its runner stops.
type HookRun struct {
	Index int  `json:"index,omitempty"`
	Ended bool `json:"ended,omitempty"`
	// Failed reports that it did not succeed, or did not run.
	Failed bool `json:"failed,omitempty"`
	// NotBegun takes back the record that it is about to run.
	NotBegun bool `json:"notBegun,omitempty"`
}

// HookState is how far a hook is.
type HookState uint8

// The states of a hook. Whether one ran that an earlier holder announced is not known.
const (
	HookOwed HookState = iota
	HookAnnounced
	HookEnded
)

// Owed is a Pod whose hooks have not all ended.
type Owed struct {
	Node int32
	*HookedPod
	// States has how far each hook is.
	States []HookState
}

// Left counts the hooks that have not ended.
func (o *Owed) Left() (n int) {
	for _, s := range o.States {
		if s != HookEnded {
			n++
		}
	}
	return n
}

// hookTable are those of the Pods that still owe some. The Recorder's lock guards them.
type hookTable struct {
	owed map[int32]*Owed
	// stopped is the node and the field of the first hook that failed whose onError is Fail.
	stopped *stoppedHook
}

type stoppedHook struct {
	node  int32
	field string
}

// Hooked notes that the object, a Pod, owes hooks.
func (e *Entry) Hooked(p *HookedPod) { e.record.Hooked = p }

// HookBegins records that a hook is about to run. It has to be durable (Sync) before it does, which
// cannot be taken back.
func (r *Recorder) HookBegins(node int32, index int) {
	e := r.Begin(node)
	e.record.Hook = &HookRun{Index: index}
	e.Commit()
}

// HookNotBegun records that a hook did not run after HookBegins: it is owed again.
func (r *Recorder) HookNotBegun(node int32, index int) {
	e := r.Begin(node)
	e.record.Hook = &HookRun{Index: index, NotBegun: true}
	e.Commit()
}

// HookEnded notes how a hook of the object ended, or that it will not run.
func (e *Entry) HookEnded(index int, failed bool) {
	e.record.Hook = &HookRun{Index: index, Ended: true, Failed: failed}
}

// Owed returns the Pods whose hooks have not all ended, in the order of the plan.
func (r *Recorder) Owed() []Owed {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Owed, 0, len(r.hooks.owed))
	for _, o := range r.hooks.owed {
		out = append(out, Owed{Node: o.Node, HookedPod: o.HookedPod, States: slices.Clone(o.States)})
	}
	slices.SortFunc(out, func(a, b Owed) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// HooksStopped returns the hook after whose failure no other one of the restore begins; "" while
// there is none.
func (r *Recorder) HooksStopped() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.hooks.stopped; s != nil {
		return messageWithName(r.plan, s.node, s.field)
	}
	return ""
}

// applyRecord makes a record count.
func (h *hookTable) applyRecord(node int32, rec *Record, counts *Counts) {
	if p := rec.Hooked; p != nil {
		counts.Hooks += len(p.Hooks)
		if p.Unusable {
			counts.Hooks++
			counts.HooksFailed++
		}
		if len(p.Hooks) > 0 {
			putLazy(&h.owed, node, &Owed{Node: node, HookedPod: p, States: make([]HookState, len(p.Hooks))})
		}
	}
	run, owed := rec.Hook, h.owed[node]
	if run == nil || owed == nil || run.Index < 0 || run.Index >= len(owed.States) || owed.States[run.Index] == HookEnded {
		return
	}
	switch {
	case run.NotBegun:
		owed.States[run.Index] = HookOwed
		return
	case !run.Ended:
		owed.States[run.Index] = HookAnnounced
		return
	}
	owed.States[run.Index] = HookEnded
	if hook := &owed.Hooks[run.Index]; run.Failed {
		counts.HooksFailed++
		if hook.Fail && h.stopped == nil {
			h.stopped = &stoppedHook{node, hook.Field}
		}
	}
	if owed.Left() == 0 {
		delete(h.owed, node)
	}
}
