package podhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Pod is a Pod with hooks, on its way through them. Used by one goroutine at a time.
type Pod struct {
	Key itemset.Key
	// Claims are the claims that the Pod mounts, by name in its namespace.
	Claims []string
	// Refused is why the Pod is not to be stored, once its pre hooks have run: one of them failed
	// whose onError is Fail.
	Refused error

	object     checkpoint.Object
	hooks      hook.Around
	containers []string // of all kinds, the Pod's own first
	unusable   error    // its annotations, none of its hooks runs
	owed       bool     // it needs its post hooks alone
	entries    []joblog.Entry
	attempted  int
	failed     int
}

// namedContainer is what of a container decides on a hook.
type namedContainer struct {
	Name string `json:"name"`
}

// runningPod is what of a Pod decides on its hooks.
type runningPod struct {
	Spec struct {
		Containers []namedContainer `json:"containers"`
		// InitContainers include sidecars.
		InitContainers      []namedContainer `json:"initContainers"`
		EphemeralContainers []namedContainer `json:"ephemeralContainers"`
		Volumes             []struct {
			Name      string    `json:"name"`
			Ephemeral *struct{} `json:"ephemeral"`
			Claim     *struct {
				Name string `json:"claimName"`
			} `json:"persistentVolumeClaim"`
		} `json:"volumes"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// Of returns the hooks of a Pod as it was listed; nil without any, and for one that does not run.
func (r *Runner) Of(it *itemset.SpooledItem) *Pod {
	o, err := actionset.ParseObject(it.GroupVersionKind(), it.Raw)
	if err != nil {
		return nil // processing it fails with that
	}
	m, raw := o.Meta, o.Raw
	around, err := r.Set.Of(hookPod(m))
	if err == nil && !around.Any() {
		return nil
	}
	var pod runningPod
	if json.Unmarshal(raw, &pod) != nil || pod.Status.Phase != "Running" {
		return nil
	}
	p := &Pod{
		object: checkpoint.Object{Kind: "Pod", Namespace: strings.Clone(m.Namespace), Name: strings.Clone(m.Name)},
		hooks:  around, unusable: err, attempted: max(1, len(around.Pre)+len(around.Post)),
	}
	p.Key = history.KeyOf(&p.object)
	// The API server takes containers of all these kinds for a command.
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers, pod.Spec.EphemeralContainers) {
		p.containers = append(p.containers, c.Name)
	}
	p.Claims = pod.mountedClaims(p.object.Name)
	return p
}

// mountedClaims returns the claims that a Pod of that name mounts.
func (r *runningPod) mountedClaims(name string) (all []string) {
	for _, v := range r.Spec.Volumes {
		switch {
		case v.Claim != nil:
			all = append(all, v.Claim.Name)
		case v.Ephemeral != nil:
			all = append(all, name+"-"+v.Name)
		}
	}
	return all
}

// Claims returns the claims that a Pod mounts, by name in its namespace; none of one that cannot be
// read.
func Claims(it *itemset.SpooledItem) []string {
	var pod runningPod
	if json.Unmarshal(it.Raw, &pod) != nil {
		return nil
	}
	return pod.mountedClaims(it.Name)
}

// Owed returns a Pod whose post hooks an earlier holder left, and that needs nothing else.
func (r *Runner) Owed(o *checkpoint.HookedPod) *Pod {
	p := &Pod{Key: history.KeyOf(&o.Object), object: o.Object, attempted: o.Pre + len(o.Post), owed: true}
	for i := range o.Pre {
		if out, ran := r.Past.Ran(checkpoint.Hook{Pod: o.Object, Phase: checkpoint.HookPre, Index: i}); ran && (out == nil || out.Error != "") {
			p.failed++
		}
	}
	for _, c := range o.Post {
		p.hooks.Post = append(p.hooks.Post, hook.Exec(c))
	}
	return p
}

// Item names the Pod.
func (p *Pod) Item() itemset.SpooledItem {
	return itemset.SpooledItem{Version: "v1", Kind: p.object.Kind, Resource: plan.Pods.Resource, Namespace: p.object.Namespace, Name: p.object.Name}
}

// HasPostHooks reports whether post hooks of the Pod are to run.
func (p *Pod) HasPostHooks() bool { return len(p.hooks.Post) > 0 }

// Namespace is that of the Pod.
func (p *Pod) Namespace() string { return p.object.Namespace }

// Entries returns the log entries since the last call.
func (p *Pod) Entries() []joblog.Entry {
	out := p.entries
	p.entries = nil
	return out
}

// Ended is the record, once the post hooks have run, that all hooks have ended.
func (p *Pod) Ended() checkpoint.HooksEnded {
	return checkpoint.HooksEnded{Pod: p.object, Attempted: p.attempted, Failed: p.failed}
}

func (p *Pod) noteMessage(level joblog.Level, message string, err error) {
	e := partwriter.EntryAbout(plan.Pods, p.object.Namespace, p.object.Name, message, err)
	e.Level = level
	p.entries = append(p.entries, e)
}

// hookContainer returns the container that a command runs in.
func (p *Pod) hookContainer(e *hook.Exec) (string, error) {
	if e.Container == "" && len(p.containers) > 0 {
		return p.containers[0], nil
	}
	for _, name := range p.containers {
		if name == e.Container {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: the pod has no container %q, it has %s", errContainer, e.Container, strings.Join(p.containers, ", "))
}
