package object

import (
	"cmp"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// Names are the names of a restore's objects. Safe for concurrent use.
type Names struct {
	// Versions are those of objects whose own version is not served; nil is none.
	Versions *Versions

	plan     atomic.Pointer[plan.Plan]
	recorder *outcome.Recorder
	moved    sync.Map // node -> outcome.Moved

	mu      sync.Mutex
	volumes map[string]string // of the backup -> their other names in the cluster
}

// NewNames returns the names of a plan's objects. What earlier holders renamed or moved is in the history.
func NewNames(p *plan.Plan, recorder *outcome.Recorder, history *outcome.History) *Names {
	n := &Names{recorder: recorder, volumes: map[string]string{}}
	n.plan.Store(p)
	for v, name := range history.Names {
		n.volumes[p.Name(v)] = name
	}
	for v, to := range history.Moved {
		n.Move(v, to)
	}
	return n
}

// KeepNames replaces the plan by its names.
func (n *Names) KeepNames(names *plan.Plan) { n.plan.Store(names) }

// Volume returns what a PersistentVolume of the backup is called in the cluster.
func (n *Names) Volume(stored string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.volumes[stored], stored)
}

// RenameVolume notes that a PersistentVolume of the backup has another name in the cluster.
func (n *Names) RenameVolume(stored, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.volumes[stored] = name
}

// Move notes that an object has another place than the plan's; false where that is known.
func (n *Names) Move(node int32, to outcome.Moved) bool {
	before, known := n.moved.Swap(node, to)
	return !known || before != to
}

// Name is what the object of a node is called in the cluster.
func (n *Names) Name(node int32) string {
	p := n.plan.Load()
	name := p.Name(node)
	switch {
	case p.Class(node) == plan.NamespaceObject:
		return p.MapNamespace(name)
	case p.Kind(node).String() == "persistentvolumes":
		return n.Volume(name)
	}
	return name
}

// Kind is what the restored object of a node is.
func (n *Names) Kind(node int32) schema.GroupVersionKind {
	to, _ := n.moved.Load(node)
	if to, _ := to.(outcome.Moved); to.Kind != "" {
		return schema.FromAPIVersionAndKind(to.APIVersion, to.Kind)
	}
	return n.plan.Load().Kind(node).GVK
}

// Planned names the object of a node as it is where no action moves it.
func (n *Names) Planned(node int32) apply.Target {
	p := n.plan.Load()
	kind := p.Kind(node)
	gvr := kind.GVK.GroupVersion().WithResource(kind.Resource)
	gvr.Version = n.Versions.Known(gvr)
	return apply.Target{GVR: gvr, Namespace: p.Target(node), Name: n.Name(node)}
}

// Target names the restored object of a node.
func (n *Names) Target(node int32) apply.Target {
	t := n.Planned(node)
	if to, moved := n.moved.Load(node); moved {
		to, _ := to.(outcome.Moved)
		t.Namespace, t.Name = to.Namespace, to.Name
		if gv, err := schema.ParseGroupVersion(to.APIVersion); err == nil && to.Resource != "" {
			t.GVR = gv.WithResource(to.Resource)
		}
	}
	return t
}
