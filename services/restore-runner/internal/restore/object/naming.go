package object

import (
	"cmp"
	"sync"
	"sync/atomic"

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

	mu      sync.Mutex
	volumes map[string]string // of the backup -> their other names in the cluster
}

// NewNames returns the names of a plan's objects. renamed are the PersistentVolumes that have another
// name in the cluster than in the backup.
func NewNames(p *plan.Plan, recorder *outcome.Recorder, renamed map[int32]string) *Names {
	n := &Names{recorder: recorder, volumes: map[string]string{}}
	n.plan.Store(p)
	for v, name := range renamed {
		n.volumes[p.Name(v)] = name
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

// Target names the restored object of a node.
func (n *Names) Target(node int32) apply.Target {
	p := n.plan.Load()
	kind := p.Kind(node)
	gvr := kind.GVK.GroupVersion().WithResource(kind.Resource)
	gvr.Version = n.Versions.Known(gvr)
	return apply.Target{GVR: gvr, Namespace: p.Target(node), Name: n.Name(node)}
}
