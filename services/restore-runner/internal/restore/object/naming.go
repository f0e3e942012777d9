package object

import (
	"cmp"
	"sync"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// Names are the names of a restore's objects. Safe for concurrent use.
type Names struct {
	// Versions are those of objects whose own version is not served; nil is none.
	Versions *Versions

	plan     *plan.Plan
	recorder *outcome.Recorder

	mu      sync.Mutex
	volumes map[string]string // of the backup -> their other names in the cluster
}

// NewNames returns the names of a plan's objects. renamed are the PersistentVolumes that have another
// name in the cluster than in the backup.
func NewNames(p *plan.Plan, recorder *outcome.Recorder, renamed map[int32]string) *Names {
	n := &Names{plan: p, recorder: recorder, volumes: map[string]string{}}
	for v, name := range renamed {
		n.volumes[p.Name(v)] = name
	}
	return n
}

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
	name := n.plan.Name(node)
	switch {
	case n.plan.Class(node) == plan.NamespaceObject:
		return n.plan.MapNamespace(name)
	case n.plan.Kind(node).String() == "persistentvolumes":
		return n.Volume(name)
	}
	return name
}

// Target names the restored object of a node.
func (n *Names) Target(node int32) apply.Target {
	kind := n.plan.Kind(node)
	gvr := kind.GVK.GroupVersion().WithResource(kind.Resource)
	gvr.Version = n.Versions.Known(gvr)
	return apply.Target{GVR: gvr, Namespace: n.plan.Target(node), Name: n.Name(node)}
}
